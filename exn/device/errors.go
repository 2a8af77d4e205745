package device

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// The causes of a failed Open, for errors.Is.
var (
	// ErrConfig means that the Config asks for something impossible. Nothing was done.
	ErrConfig = errors.New("device: impossible configuration")
	// ErrTaken means that an interface of that name belongs to somebody else.
	ErrTaken = errors.New("device: name taken")
	// ErrMissing means that the namespace or a feature of the kernel does not exist.
	ErrMissing = errors.New("device: not available")
	// ErrPermission means that the process lacks a permission.
	ErrPermission = errors.New("device: not permitted")
)

// permission adds the remedy for EPERM and EACCES.
func permission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run as root, or with CAP_NET_ADMIN (and CAP_SYS_ADMIN to enter another namespace): %w", err, ErrPermission)
	}
	return err
}

// openError explains why /dev/net/tun cannot be opened.
func openError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; load the driver (modprobe tun), or give the container the device (--device %s): %w", err, tunPath, ErrMissing)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w; the driver is not there: modprobe tun, or a kernel with CONFIG_TUN: %w", err, ErrMissing)
	}
	return permission(err)
}
