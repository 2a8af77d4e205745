package programs

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/exn"
)

// random writes a file of random bytes that all users may read, and returns its checksum.
func random(t *testing.T, path string, size int64) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(file, sum), rand.NewChaCha8([32]byte{byte(size)}), size); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// sum returns the checksum of a file.
func sum(t *testing.T, path string) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// large returns the size of a large file: a GB, or less in short mode.
func large() int64 {
	if testing.Short() {
		return 64 << 20
	}
	return 1 << 30
}

const nginxConfiguration = `
daemon off;
user root;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
	access_log off;
	sendfile on;
	default_type application/octet-stream;
	client_max_body_size 0;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen 80;
		listen [::]:80;
		root %[1]s/www;
		location /put/ { dav_methods PUT; alias %[1]s/put/; }
	}
}
`

// curl fetches a large file from nginx, and sends it back.
func TestNginx(t *testing.T) {
	root := debroot.Need(t, "nginx-light", "curl")
	for _, mtu := range []int{65535, 1500} {
		if testing.Short() && mtu != 65535 {
			continue
		}
		f := exn.Up(t, exn.Options{MTU: []int{mtu}})
		a, b := f.Nodes[0], f.Nodes[1]
		dir := t.TempDir()
		want := random(t, filepath.Join(dir, "www", "large"), large())
		if err := os.Mkdir(filepath.Join(dir, "put"), 0o755); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfiguration, dir), 0o644); err != nil {
			t.Fatal(err)
		}
		b.Serve(80, b.Program(root, "nginx", "-p", dir, "-c", config, "-e", "stderr"))
		for _, host := range []string{b.IPv4.String(), "[" + b.IPv6.String() + "]"} {
			got := filepath.Join(dir, "got")
			a.Run(a.Program(root, "curl", "-sS", "--fail", "-o", got, "http://"+host+"/large"))
			if s := sum(t, got); s != want {
				t.Errorf("MTU %d: from %s came another file: %s, want %s", mtu, host, s, want)
			}
			a.Run(a.Program(root, "curl", "-sS", "--fail", "-T", got, "http://"+host+"/put/large"))
			if s := sum(t, filepath.Join(dir, "put", "large")); s != want {
				t.Errorf("MTU %d: to %s went another file: %s, want %s", mtu, host, s, want)
			}
		}
	}
}

// This script runs sshd in a root of its own, with its user, directory and keys.
const startSSHD = `
useradd --system --no-create-home --shell /usr/sbin/nologin sshd 2>/dev/null || true
mount -t tmpfs none /run && mkdir -m 755 /run/sshd
exec /usr/sbin/sshd -D -e -f "$1"
`

const sshdConfiguration = `
Port 22
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/client.pub
StrictModes no
PermitRootLogin prohibit-password
UsePAM no
PidFile none
Subsystem sftp internal-sftp
`

// ssh, scp and rsync work.
func TestSSH(t *testing.T) {
	root := debroot.Need(t, "openssh-server", "openssh-client", "openssh-sftp-server", "rsync")
	f := exn.Up(t, exn.Options{})
	a, b := f.Nodes[0], f.Nodes[1]
	dir := t.TempDir()
	for _, key := range []string{"host", "client"} {
		a.Run(a.Program(root, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)))
	}
	config := filepath.Join(dir, "sshd_config")
	if err := os.WriteFile(config, fmt.Appendf(nil, sshdConfiguration, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Serve(22, b.Program(root, "sh", "-c", startSSHD, "sshd", config))
	options := []string{"-F", "none", "-i", filepath.Join(dir, "client"), "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"}
	host := "root@" + b.IPv4.String()

	out := a.Run(a.Program(root, "ssh", append(options, host, "echo $SSH_CONNECTION; seq 100000 | tail -1")...))
	if want := fmt.Sprintf("%v ", a.IPv4); !strings.HasPrefix(string(out), want) || !strings.HasSuffix(string(out), "\n100000\n") {
		t.Errorf("ssh: %q", out)
	}

	want := random(t, filepath.Join(dir, "file"), 256<<20)
	a.Run(a.Program(root, "scp", append(options, filepath.Join(dir, "file"), host+":"+filepath.Join(dir, "copied"))...))
	if s := sum(t, filepath.Join(dir, "copied")); s != want {
		t.Errorf("scp: %s, want %s", s, want)
	}

	tree := filepath.Join(dir, "tree")
	sums := map[string]string{}
	for i := range 200 {
		name := fmt.Sprintf("%d/file-%d", i%7, i)
		sums[name] = random(t, filepath.Join(tree, name), int64(i*i*37))
	}
	a.Run(a.Program(root, "rsync", "-a", "-e", "ssh "+strings.Join(options, " "), tree+"/", host+":"+filepath.Join(dir, "synced")+"/"))
	for name, want := range sums {
		if s := sum(t, filepath.Join(dir, "synced", name)); s != want {
			t.Errorf("rsync: %s is %s, want %s", name, s, want)
		}
	}
}
