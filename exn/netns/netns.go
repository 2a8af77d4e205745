// Package netns makes network namespaces, runs code and programs in them, and
// joins them.
//
// A namespace made here has no name in the file system. It lives as long as
// somebody uses it: whoever holds its descriptor, and the processes in it. So
// nothing has to be cleaned up after a crash, and nothing on the machine
// changes: both ends of every link are made inside.
//
//	a, err := netns.New()
//	b, err := netns.New()
//	err = netns.Veth(netns.End{NS: a, Link: "to-b", Addr: "10.1.0.1/24"},
//		netns.End{NS: b, Link: "to-a", Addr: "10.1.0.2/24"})
//	err = a.Do(func() (err error) { ln, err = net.Listen("tcp", "10.1.0.1:0"); return err })
//	err = b.Start(cmd)
//
// Making one needs root (CAP_SYS_ADMIN); without it errors are EPERM.
package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// NS is a network namespace. It can be used by several goroutines at once.
type NS struct{ file *os.File }

// threadNS is the namespace of the calling thread, which Go code may see
// differ from that of its process.
const threadNS = "/proc/thread-self/ns/net"

// named is where ip-netns(8) keeps the namespaces that have names.
const named = "/run/netns"

// New makes a network namespace with the loopback interface up.
func New() (*NS, error) {
	var ns *NS
	err := inside(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		if ns, err = current(); err != nil {
			return err
		}
		return up("lo")
	})
	if err != nil {
		if ns != nil {
			ns.Close()
		}
		return nil, fmt.Errorf("cannot make a network namespace: %w", err)
	}
	return ns, nil
}

// Open opens a namespace that is there: by its name, as ip netns list shows
// it, or by a path such as /proc/PID/ns/net.
func Open(name string) (*NS, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join(named, name)
	}
	file, err := open(path)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("network namespace %q: %w; that of another process needs CAP_SYS_PTRACE", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %q: %w; see ip netns list, or make it with ip netns add", name, err)
	}
	if kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, fmt.Errorf("%s %w; ip netns list shows those that have a name", path, ErrOther)
	}
	return &NS{file}, nil
}

// ErrOther means that a file is something else.
var ErrOther = errors.New("is not a network namespace")

// open opens such a file without asking whether it can be polled.
func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func current() (*NS, error) {
	file, err := open(threadNS)
	if err != nil {
		return nil, fmt.Errorf("cannot open the network namespace of this thread: %w", err)
	}
	return &NS{file}, nil
}

// inside calls f on a thread that change has moved into another namespace, and
// sees to it that no other goroutine gets that thread before it is back.
func inside(change, f func() error) error {
	runtime.LockOSThread()
	home, err := current()
	if err == nil {
		defer home.file.Close()
		err = change()
	}
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if err := home.enter(); err != nil {
			// The thread stays locked, so that it ends with this goroutine.
			panic(fmt.Sprintf("netns: cannot return to the namespace of the process: %v", err))
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// enter moves the calling thread into the namespace.
func (ns *NS) enter() error {
	if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("cannot enter network namespace %s: %w", ns, err)
	}
	return nil
}

// String returns a path that names the namespace to other processes for as
// long as this one holds it.
func (ns *NS) String() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.file.Fd())
}

// Fd returns the descriptor of the namespace, which stays its own.
func (ns *NS) Fd() int { return int(ns.file.Fd()) }

// Cookie is the number by which the kernel names the namespace (SO_NETNS_COOKIE). No
// other gets it while the machine runs.
func (ns *NS) Cookie() (cookie uint64, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cookie of network namespace %s: %w", ns, err)
	}
	return cookie, nil
}

// Close lets the namespace go. It ends when the last process in it does.
func (ns *NS) Close() error { return ns.file.Close() }

// Do calls f inside the namespace and returns what it returns. Sockets and
// devices belong to the namespace when f itself makes them; goroutines that f
// starts, those of a net.Dial by name included, run outside.
func (ns *NS) Do(f func() error) error { return inside(ns.enter, f) }

// Start starts cmd inside the namespace.
func (ns *NS) Start(cmd *exec.Cmd) error { return inside(ns.enter, cmd.Start) }
