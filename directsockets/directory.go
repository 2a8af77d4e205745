package directsockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
)

// A directory is FABRIC/ds, where processes find each other.
type directory struct {
	path string
	fd   int
}

// errUntrusted says that others may write there who could mislead us.
var errUntrusted = errors.New("the fabric directory is not ours, root's or a group's, or everybody may write it; name another by EXN_FABRIC")

func trusted(fd int) error {
	const group, others = 0o020, 0o002
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&others != 0 || int(st.Uid) != unix.Geteuid() && st.Uid != 0 && st.Mode&group == 0 {
		return errUntrusted
	}
	return nil
}

// makeShared makes the directory ds if it is missing, with the group's bits of that
// above, whatever the umask. It appears with its final mode: others may be about to
// open it. What fails here is told by who opens it.
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

// openDirectory opens it. A fabric directory that is missing is made 0700.
func openDirectory(fabric string) (*directory, error) {
	const mode = unix.O_DIRECTORY | unix.O_CLOEXEC
	if err := unix.Mkdir(fabric, 0o700); err != nil && err != unix.EEXIST {
		return nil, fmt.Errorf("fabric directory %s: %w", fabric, err)
	}
	top, err := unix.Open(fabric, mode, 0)
	if err != nil {
		return nil, fmt.Errorf("fabric directory %s: %w", fabric, err)
	}
	defer unix.Close(top)
	if err := trusted(top); err != nil {
		return nil, fmt.Errorf("%s: %w", fabric, err)
	}
	makeShared(top)
	fd, err := unix.Openat(top, home.Offers, mode|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%s/ds: %w", fabric, err)
	}
	if err := trusted(fd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s/ds: %w", fabric, err)
	}
	return &directory{path: filepath.Join(fabric, home.Offers), fd: fd}, nil
}

// address is that of a listener, by way of our descriptor where the path is too
// long for a socket address.
func (d *directory) address(name string) *unix.SockaddrUnix {
	const most = 107
	path := d.path + "/" + name
	if len(path) > most {
		path = fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, name)
	}
	return &unix.SockaddrUnix{Name: path}
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

// deserted: nobody listens there any more. A socket of the wrong type is told so
// by a living listener, which notices nothing.
func (d *directory) deserted(name string) bool {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(s)
	err = unix.Connect(s, d.address(name))
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
			if !listenerName(listener) || d.age(name) > offerExpired || d.deserted(listener) {
				unix.Unlinkat(d.fd, name, 0)
			}
		case listenerName(name) && d.deserted(name):
			unix.Unlinkat(d.fd, name, 0)
		}
	}
}
