package directsockets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/fabric/dir"
)

// A directory is FABRIC/ds, through which processes find each other.
type directory struct {
	path  string
	file  *os.File // keeps fd
	fd    int
	peers dir.Peers
}

func (d *directory) close() { d.file.Close() }

// makeShared makes the directory ds if it is missing. It gives it the group permissions of the
// directory above, whatever the umask. The directory appears with its final mode, since other
// processes may be about to open it. Opening it reports what fails here.
func makeShared(top int) {
	var st unix.Stat_t
	if unix.Fstatat(top, home.Offers, &st, unix.AT_SYMLINK_NOFOLLOW) == nil || unix.Fstat(top, &st) != nil {
		return
	}
	name := fmt.Sprintf(".ds-%d-%x", os.Getpid(), time.Now().UnixNano())
	if unix.Mkdirat(top, name, 0o700) != nil {
		return
	}
	const group = 0o070
	if st.Mode&group != 0 {
		unix.Fchmodat(top, name, st.Mode&0o7777, 0)
	}
	if unix.Renameat2(top, name, top, home.Offers, unix.RENAME_NOREPLACE) != nil {
		unix.Unlinkat(top, name, unix.AT_REMOVEDIR) // another process was first
	}
}

// openDirectory opens the directory ds. It makes a missing fabric directory with mode 0700.
func openDirectory(fabric string, peers dir.Peers) (*directory, error) {
	if fabric == "" {
		return nil, dir.ErrNone
	}
	top, err := dir.Open(fabric, peers)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	makeShared(int(top.Fd()))
	path := filepath.Join(fabric, home.Offers)
	fd, err := unix.Openat(int(top.Fd()), home.Offers, unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := dir.JudgeFile(f, peers); err != nil {
		f.Close()
		return nil, err
	}
	return &directory{path: path, file: f, fd: fd, peers: peers}, nil
}

// address returns where to bind a listener of that name. It goes through our descriptor, since the
// path may lead elsewhere by now.
func (d *directory) address(name string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, name)}
}

// connect connects a socket to the listener of that name. The listener must belong to our user, or
// to anybody if the directory is shared by a group. We check the owner before connecting, because
// the process that accepts may have queued descriptors at once.
func (d *directory) connect(socket int, name string) error {
	at, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || d.peers == dir.SameUser && int(st.Uid) != unix.Geteuid() {
		return unix.EPERM
	}
	return unix.Connect(socket, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", at)})
}

// remove removes the file of that name if it is of this type and belongs to our user.
func (d *directory) remove(name string, kind uint32) {
	var st unix.Stat_t
	if unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == kind && int(st.Uid) == unix.Geteuid() {
		unix.Unlinkat(d.fd, name, 0)
	}
}

func (d *directory) readlink(name string) (string, error) {
	b := make([]byte, 2*nameSize)
	n, err := unix.Readlinkat(d.fd, name, b)
	if err != nil {
		return "", os.NewSyscallError("readlinkat", err)
	}
	return string(b[:n]), nil
}

func (d *directory) age(name string) time.Duration {
	var st unix.Stat_t
	if unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return time.Hour
	}
	return time.Since(time.Unix(st.Mtim.Unix()))
}

// deserted reports whether nobody listens there any more. It connects a socket of the wrong type: a
// living listener rejects that without noticing.
func (d *directory) deserted(name string) bool {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(s)
	err = d.connect(s, name)
	return err == unix.ECONNREFUSED || err == unix.ENOENT
}

// sweep removes what crashed processes have left.
func (d *directory) sweep() {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", d.fd))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "o-"):
			target, err := d.readlink(name)
			if err != nil {
				continue
			}
			listener, _, _ := strings.Cut(target, ":")
			refusal := strings.HasPrefix(target, refusalMark)
			if d.age(name) > offerExpired || !refusal && (!listenerName(listener) || d.deserted(listener)) {
				d.remove(name, unix.S_IFLNK)
			}
		case listenerName(name) && d.deserted(name):
			d.remove(name, unix.S_IFSOCK)
		}
	}
}
