package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

const sshdConfiguration = `
ListenAddress 127.0.0.1:%[2]d
HostKey %[1]s/host
AuthorizedKeysFile %[1]s/user.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
Subsystem sftp internal-sftp
`

// Sshd starts itself again for each connection, by exec, and changes its
// privileges. Whether it gets lanes is all the same; what scp copies must be right.
func TestSSH(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for sshd to become its users")
	}
	root := debroot.Need(t, "openssh-server", "openssh-client")
	size := int64(20 << 20)
	if ds.Long() {
		size = 500 << 20
	}
	compare(t, scenario{root: root, play: func(s *stage) string {
		source := filepath.Join(s.dir, "source")
		writeRandom(s.T, source, size)
		port, options := s.sshd()
		ssh := func(input []byte, command string) []byte {
			return s.run(input, "ssh", append(options, "-p", port, "root@127.0.0.1", command)...)
		}

		var out strings.Builder
		fmt.Fprintf(&out, "echo: %s", ssh(nil, "echo hello"))
		input := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		fmt.Fprintf(&out, "pipe: %x\n", sha256.Sum256(ssh(input, "cat | cat")))
		for _, way := range [][2]string{{source, "root@127.0.0.1:" + s.dir + "/there"}, {"root@127.0.0.1:" + s.dir + "/there", s.dir + "/back"}} {
			s.run(nil, "scp", append(options, "-P", port, way[0], way[1])...)
		}
		back, err := os.ReadFile(filepath.Join(s.dir, "back"))
		if err != nil {
			s.Error(err)
		}
		fmt.Fprintf(&out, "copied: %x\n", sha256.Sum256(back))
		return out.String()
	}})
}

// sshd starts a server to which root may come, by the options of ssh.
func (s *stage) sshd() (port string, options []string) {
	s.Helper()
	number := freePort()
	for _, key := range []string{"host", "user"} {
		path := filepath.Join(s.dir, key)
		os.Remove(path) // ssh-keygen asks before it overwrites
		if out, err := s.command(nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			s.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := s.write("sshd_config", fmt.Sprintf(sshdConfiguration, s.dir, number))
	// What installing the package would have set up.
	const prepare = `getent passwd sshd >/dev/null || useradd --system sshd; mount -t tmpfs none /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f "$1"`
	s.serve(number, "sh", "-c", prepare, "sh", config)
	return strconv.Itoa(number), []string{"-i", filepath.Join(s.dir, "user"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "BatchMode=yes", "-o", "LogLevel=ERROR"}
}
