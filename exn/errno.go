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

// errnoOf returns what the kernel would have said in place of netstack's error.
func errnoOf(err tcpip.Error) syscall.Errno {
	if _, ok := err.(*tcpip.ErrNoPortAvailable); ok {
		return syscall.EADDRNOTAVAIL // as connect(2) has it; the table is bind's
	}
	return syscall.Errno(syserr.TranslateNetstackError(err).ToLinux())
}

// callError is the error of one step, as package net has it of a system call.
func callError(call string, err tcpip.Error) error {
	return os.NewSyscallError(call, errnoOf(err))
}

// ctxError returns the error of a dial that its context ended.
func ctxError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

// opError wraps an error of a socket, but never the end of a stream.
func (s *socket) opError(op string, remote net.Addr, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: s.network, Source: s.local, Addr: remote, Err: err}
}
