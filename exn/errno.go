package exn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// errnoOf returns the errno that the kernel would give for netstack's error.
func errnoOf(err tcpip.Error) syscall.Errno {
	if _, ok := err.(*tcpip.ErrNoPortAvailable); ok {
		return syscall.EADDRNOTAVAIL // as connect(2) says; the table has bind's
	}
	return syscall.Errno(syserr.TranslateNetstackError(err).ToLinux())
}

// callError returns the error of one step in the form that package net gives a system call's.
func callError(call string, err tcpip.Error) error {
	return os.NewSyscallError(call, errnoOf(err))
}

// ctxError returns the error of a dial that was ended by its context.
func ctxError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

// opError wraps an error of a socket. It leaves the end of a stream, io.EOF, as it is.
func (s *socket) opError(op string, remote net.Addr, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: s.network, Source: s.local, Addr: remote, Err: err}
}
