package device

import (
	"errors"
	"fmt"
	"io/fs"

	"exnet/exn/netns"
)

// inNamespace calls f on a thread inside a network namespace, given by its name or by a path with a
// slash in it; "" is the namespace of this process. What f opens there (a TUN, a netlink socket)
// stays there, so the rest of the program need not know of the namespace. f must not start a
// goroutine that relies on it.
func inNamespace(name string, f func() error) error {
	if name == "" {
		return f()
	}
	ns, err := netns.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, netns.ErrOther) {
		return fmt.Errorf("%w: %w", err, ErrMissing)
	}
	if err != nil {
		return permission(err)
	}
	defer ns.Close()
	entered := false
	err = ns.Do(func() error {
		entered = true
		return f()
	})
	if !entered {
		return permission(err)
	}
	return err
}
