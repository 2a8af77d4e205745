package path

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"exnet/exn/netns"
)

// newNamespace is replaced in tests.
var newNamespace = netns.New

// A NoNamespace says why no network namespace can be made here, and what helps.
type NoNamespace struct{ Err error }

func (n NoNamespace) Error() string { return n.Err.Error() }

func (n NoNamespace) Unwrap() error { return n.Err }

// explained adds the remedy to an error of newNamespace.
func explained(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return NoNamespace{fmt.Errorf("needs root, for network namespaces: run it with sudo (%w)", err)}
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS):
		return NoNamespace{fmt.Errorf("this kernel has no network namespaces (CONFIG_NET_NS): use another kernel (%w)", err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return NoNamespace{fmt.Errorf("no more network namespaces are allowed: raise user.max_net_namespaces by sysctl (%w)", err)}
	}
	return err
}
