package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// What works through a pipe to ssh: rsync, sftp and git. Sshd has each connection as its
// 0 and 1, and so none gets a lane.
func TestOverSSH(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for sshd to become its users")
	}
	root := debroot.Need(t, "openssh-server", "openssh-client", "rsync", "git")
	compare(t, scenario{root: root, bothOnly: true, play: func(s *stage) string {
		port, options := s.sshd()
		shell := "ssh " + strings.Join(options, " ") + " -p " + port
		here, there := s.tree("here", 60, 4<<20), s.fresh("there")
		var out strings.Builder
		rsync := func(from, to string) {
			s.run(nil, "rsync", "-a", "--delete", "-e", shell, from+"/", to+"/")
		}
		rsync(here, "root@127.0.0.1:"+there)
		fmt.Fprintf(&out, "rsync: %s", digestTree(s, there))
		s.change(here)
		rsync(here, "root@127.0.0.1:"+there)
		fmt.Fprintf(&out, "again, what has changed: %s", digestTree(s, there))
		back := s.fresh("back")
		rsync("root@127.0.0.1:"+there, back)
		fmt.Fprintf(&out, "back: %s", digestTree(s, back))

		ftp := s.fresh("ftp")
		batch := fmt.Sprintf("mkdir %[2]s/d\ncd %[2]s/d\nput -r %[1]s\nrename here/7 moved\nrm here/8\nls -1 here\nget moved %[2]s/got\nget -r here/sub %[2]s\n", here, ftp)
		text := s.run([]byte(batch), "sftp", append(append([]string{}, options...), "-q", "-b", "-", "-P", port, "root@127.0.0.1")...)
		fmt.Fprintf(&out, "sftp: %x, %s", sha256.Sum256(text), digestTree(s, ftp))

		work, bare := s.fresh("work"), s.fresh("bare")
		git := func(args ...string) []byte {
			env := append([]string{"GIT_SSH_COMMAND=" + shell, "HOME=" + s.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
				"GIT_COMMITTER_EMAIL=a@b", "GIT_AUTHOR_DATE=1000000000 +0000", "GIT_COMMITTER_DATE=1000000000 +0000"}, "git")
			return s.run(nil, "env", append(env, args...)...)
		}
		url := "ssh://root@127.0.0.1:" + port + bare
		git("init", "-q", "--bare", "-b", "main", bare)
		git("clone", "-q", url, work)
		git("-C", work, "checkout", "-q", "-b", "main")
		for i := range 2 {
			s.run(nil, "cp", "-r", here, fmt.Sprintf("%s/%d", work, i))
			git("-C", work, "add", "-A")
			git("-C", work, "commit", "-q", "-m", strconv.Itoa(i))
			git("-C", work, "push", "-q", "origin", "main")
		}
		again := s.fresh("again")
		git("clone", "-q", url, again)
		git("-C", again, "fsck", "--strict")
		fmt.Fprintf(&out, "git: %s, %s", git("-C", again, "log", "--format=%H"), git("-C", again, "ls-remote"))
		return out.String()
	}})
}

// The server of rsync's own. Who receives files becomes two processes that share the
// connection: it gets a lane if it did before, else none.
func TestRsync(t *testing.T) {
	root := debroot.Need(t, "rsync")
	compare(t, scenario{root: root, play: func(s *stage) string {
		port := freePort()
		here, there := s.tree("here", 200, 20<<20), s.fresh("there")
		config := s.write("rsyncd.conf", fmt.Sprintf("use chroot = no\nlog file = %s/rsyncd.log\n[m]\npath = %s\nread only = no\nuid = %d\ngid = %[3]d\n", s.dir, there, os.Getuid()))
		s.serve(port, "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+strconv.Itoa(port), "--config="+config)
		url := fmt.Sprintf("rsync://127.0.0.1:%d/m/", port)
		var out strings.Builder
		s.run(nil, "rsync", "-a", "--delete", here+"/", url)
		fmt.Fprintf(&out, "there: %s", digestTree(s, there))
		s.change(here)
		s.run(nil, "rsync", "-a", "--delete", here+"/", url)
		fmt.Fprintf(&out, "again, what has changed: %s", digestTree(s, there))
		back := s.fresh("back")
		s.run(nil, "rsync", "-a", url, back+"/")
		fmt.Fprintf(&out, "back: %s", digestTree(s, back))
		return out.String()
	}})
}

// tree makes a directory of small files and a large one, always the same.
func (s *stage) tree(name string, small, large int) string {
	s.Helper()
	dir := s.fresh(name)
	r := rand.NewChaCha8([32]byte{7})
	file := func(name string, size int) {
		text := make([]byte, size)
		r.Read(text)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			s.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		s.Fatal(err)
	}
	for i := range small {
		file(strconv.Itoa(i), i*i)
		file("sub/"+strconv.Itoa(i), i)
	}
	file("large", large)
	return dir
}

// change changes a few places in the large file of a tree, and some small files.
func (s *stage) change(dir string) {
	s.Helper()
	path := filepath.Join(dir, "large")
	text, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	text = bytes.Join([][]byte{text[:1<<20], []byte("put in between"), text[1<<20 : 2<<20], text[3<<20:]}, nil)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		s.Fatal(err)
	}
	for i := range 5 {
		if err := os.Remove(filepath.Join(dir, strconv.Itoa(10*i))); err != nil {
			s.Fatal(err)
		}
	}
}

// digestTree says what is in a directory.
func digestTree(s *stage, dir string) string {
	s.Helper()
	digest, n := sha256.New(), 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(digest, "%s %d\n", path, len(text))
		digest.Write(text)
		n++
		return err
	})
	if err != nil {
		s.Error(err)
	}
	return fmt.Sprintf("%d files, %x\n", n, digest.Sum(nil))
}
