// Package netns makes network namespaces, runs code and programs in them, and joins them.
//
// A namespace made here has no name in the file system. It lives as long as a process is in it or
// holds its descriptor. So nothing has to be cleaned up after a crash, and nothing else on the
// machine changes: both ends of every link are inside.
//
//	a, err := netns.New()
//	b, err := netns.New()
//	err = netns.Veth(netns.End{NS: a, Link: "to-b", Addr: []string{"10.1.0.1/24"}},
//		netns.End{NS: b, Link: "to-a", Addr: []string{"10.1.0.2/24"}})
//	err = a.Do(func() (err error) { ln, err = net.Listen("tcp", "10.1.0.1:0"); return err })
//	err = b.Start(cmd)
//
// Making a namespace needs root (CAP_SYS_ADMIN). Without it the error is EPERM.
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

// NS is a network namespace. Several goroutines may use it at once.
type NS struct{ file *os.File }

// threadNS is the namespace of the calling thread. For Go code it may differ from that of the
// process.
const threadNS = "/proc/thread-self/ns/net"

// named is where ip-netns(8) keeps named namespaces.
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

// Open opens an existing namespace: by its name, as ip netns list shows it, or by a path such as
// /proc/PID/ns/net.
func Open(name string) (*NS, error) {
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join(named, name)
	}
	file, err := open(path)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("network namespace %q: %w; the namespace of another process needs CAP_SYS_PTRACE", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %q: %w; see ip netns list, or make it with ip netns add", name, err)
	}
	if kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, fmt.Errorf("%s %w; ip netns list shows named namespaces", path, ErrOther)
	}
	return &NS{file}, nil
}

// ErrOther means that a file is not a network namespace.
var ErrOther = errors.New("is not a network namespace")

// open opens such a file without trying to poll it.
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

// inside calls f on a thread that change has moved into another namespace. No other goroutine gets
// that thread before it is back.
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
			// The thread stays locked, so it ends with this goroutine.
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

// String returns a path by which other processes can open the namespace as long as this process
// holds it.
func (ns *NS) String() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.file.Fd())
}

// Fd returns the descriptor of the namespace. The NS keeps owning it.
func (ns *NS) Fd() int { return int(ns.file.Fd()) }

// Cookie returns the number by which the kernel identifies the namespace (SO_NETNS_COOKIE). No
// other namespace gets it while the machine runs.
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

// Close releases the namespace. It ends when the last process in it ends.
func (ns *NS) Close() error { return ns.file.Close() }

// Do calls f inside the namespace and returns its result. Sockets and devices belong to the
// namespace if f itself makes them. Goroutines that f starts run outside, and so do those of a
// net.Dial by name.
func (ns *NS) Do(f func() error) error { return inside(ns.enter, f) }

// Start starts cmd inside the namespace.
func (ns *NS) Start(cmd *exec.Cmd) error { return inside(ns.enter, cmd.Start) }
