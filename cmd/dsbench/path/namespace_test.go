package path

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"exnet/exn/netns"
)

// A kernel that makes no network namespaces is named as the cause, with what helps.
func TestNoNamespaces(t *testing.T) {
	defer func(before func() (*netns.NS, error)) { newNamespace = before }(newNamespace)
	for errno, want := range map[syscall.Errno]string{
		syscall.EPERM: "run it with sudo", syscall.EINVAL: "CONFIG_NET_NS", syscall.ENOSYS: "CONFIG_NET_NS",
		syscall.ENOSPC: "user.max_net_namespaces", syscall.EUSERS: "user.max_net_namespaces",
	} {
		newNamespace = func() (*netns.NS, error) { return nil, fmt.Errorf("unshare: %w", errno) }
		_, err := Veth(1500)
		if !errors.As(err, new(NoNamespace)) || !errors.Is(err, errno) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v", errno, err)
		}
	}
	newNamespace = func() (*netns.NS, error) { return nil, syscall.EIO }
	if _, err := Veth(1500); errors.As(err, new(NoNamespace)) || !errors.Is(err, syscall.EIO) {
		t.Errorf("another error: %v", err)
	}
}
