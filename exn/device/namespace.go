package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namedNamespaces is where ip-netns(8) keeps network namespaces by name.
const namedNamespaces = "/run/netns"

// inNamespace calls f on a thread inside a network namespace, given by its name
// or by a path with a slash in it; "" is the one of this process. What f opens
// there (a TUN, a netlink socket) stays there, so the rest of the program need
// not know of it. f must start no goroutine that relies on the namespace.
func inNamespace(ns string, f func() error) error {
	if ns == "" {
		return f()
	}
	there, err := openNamespace(ns)
	if err != nil {
		return err
	}
	defer there.Close()
	done := make(chan error)
	// A goroutine of its own: a thread that cannot be brought home stays locked
	// to it and ends with it.
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("network namespace %s: %w", ns, err)
			return
		}
		defer home.Close()
		if err = enter(there, ns); err == nil {
			err = f()
		}
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func openNamespace(ns string) (*os.File, error) {
	path := ns
	if !strings.Contains(ns, "/") {
		path = filepath.Join(namedNamespaces, ns)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no network namespace %q; make it first (ip netns add NAME), or give the path of one (/proc/PID/ns/net): %w",
			ns, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace %q: %w", ns, permission(err))
	}
	return f, nil
}

func enter(there *os.File, ns string) error {
	switch err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTTY):
		return fmt.Errorf("%s is not a network namespace; ip netns lists those that have a name: %w", there.Name(), ErrMissing)
	default:
		return fmt.Errorf("entering network namespace %q: %w", ns, permission(err))
	}
}
