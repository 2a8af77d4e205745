// Package reach predicts whether a connection to an address would be upgraded to a lane, and why
// not.
//
//	v, err := reach.Try(ctx, "127.0.0.1:6379", "/run/exn")
//
// # What it does
//
// It connects by TCP, sends nothing, and then goes through the rules by which two libraries decide,
// as far as they can be seen from outside. Can connections to the address be upgraded? Which
// process listens there? Does that use the library? Do both use one fabric directory that each can
// use and trusts? Are they in one user namespace?
// Every process that holds the listening socket is asked, since workers are often of another user.
//
// It does not upgrade the connection: for that both ends have to move bytes, and this package does
// not know what a server wants to hear. So "yes" means that nothing stands against an upgrade. The
// library itself still asks for proof.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/internal/diag"
	"exnet/directsockets/internal/tables"
	"exnet/directsockets/status"
)

// A Verdict is the answer.
type Verdict struct {
	Remote  netip.AddrPort `json:"remote"`
	Upgrade bool           `json:"upgrade"`
	Why     string         `json:"why,omitempty"`     // why it stays on TCP
	Remedy  string         `json:"remedy,omitempty"`  // what helps
	Program string         `json:"program,omitempty"` // that listens there
	PID     int            `json:"pid,omitempty"`
	UID     int            `json:"uid"`
	Fabric  string         `json:"fabric,omitempty"` // the program's fabric directory

	// Acceptors are all processes that hold the listening socket, as each of them may accept the
	// connection. It is upgraded if all of them can. PID, Program, UID and Fabric are those of the
	// first that cannot, else of the first.
	Acceptors []Acceptor `json:"acceptors,omitempty"`
}

func (v Verdict) no(why, remedy string) (Verdict, error) {
	v.Why, v.Remedy = why, remedy
	return v, nil
}

// ErrHidden means that the listening process cannot be inspected with our rights.
var ErrHidden = errors.New("the process that listens there cannot be seen")

// patience is how long a connection attempt may take.
const patience = 10 * time.Second

// Try connects to an address and returns the verdict for a program that uses this fabric directory.
func Try(ctx context.Context, address, fabric string) (v Verdict, err error) {
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // the rest repeats the address
		}
		return v, fmt.Errorf("cannot connect to %s by TCP: %w", address, err)
	}
	defer conn.Close()
	local, remote := end(conn.LocalAddr()), end(conn.RemoteAddr())
	v.Remote = remote
	dir, other, hidden := peerTables(local, remote)
	listens, isTranslated := remote, false
	if hidden != nil || other.IsValid() {
		if there, told := translated(ctx, conn, fabric, local, remote); told {
			listens, isTranslated = there.Local, true
			dir, other, hidden = peerTables(there.Remote, there.Local)
		}
	}
	if !isTranslated && local.Addr() != remote.Addr() && !(local.Addr().IsLoopback() && remote.Addr().IsLoopback()) {
		for _, a := range []netip.Addr{local.Addr(), remote.Addr()} {
			if _, err := home.Find(fabric, a); err != nil {
				return v.no(fmt.Sprintf("%v is neither the other end's own address nor registered in %s", a, fabric), status.Reason(4).Remedy())
			}
		}
	}
	if err := answers(unix.IPPROTO_TCP, local, remote); err != nil {
		return v.no(fmt.Sprintf("the kernel does not say whose a socket is (sock_diag: %v)", err),
			"load its module tcp_diag, in a container on the host; it is CONFIG_INET_TCP_DIAG, and some small kernels, gVisor and qemu's emulation of one program lack it")
	}
	if hidden != nil {
		return v, hidden
	}
	if other.IsValid() {
		return v.no(fmt.Sprintf("nat: the other end is %v, for something translates the address", other),
			fmt.Sprintf("connect to %v, or run exn-tun bridge in this network namespace, that of the host", other))
	}
	inodes, uid, err := listeners(dir, listens)
	if err != nil {
		return v, err
	}
	v.UID = uid
	pids, err := acceptors(inodes, uid)
	if err != nil {
		return v, err
	}
	return v.judge(pids, fabric)
}

// translated returns the other end's view of our connection, if a registrar reports translations.
func translated(ctx context.Context, conn net.Conn, fabric string, local, remote netip.AddrPort) (there home.View, told bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok || !home.Translates(fabric) {
		return home.View{}, false
	}
	ours := home.View{Local: local, Remote: remote}
	raw, err := tcp.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { ours.Net, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE) })
	}
	if err != nil {
		return home.View{}, false
	}
	return home.Ask(ctx, fabric, ours)
}

func end(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// peerTables finds the network namespace of the other end of our connection, which is usually this
// one. other is the other end's address if something translates it on the way.
func peerTables(local, remote netip.AddrPort) (dir string, other netip.AddrPort, err error) {
	has := func(process string) (found bool, err error) {
		err = tables.Each(filepath.Join(process, "net"), func(s tables.Socket) bool {
			found = s.Local == remote && s.Remote == local
			if s.Remote == local && !found && !s.Listens && !other.IsValid() {
				other = s.Local
			}
			return found
		})
		return found, err
	}
	const ours = "/proc/self"
	seen, processes := map[string]bool{"": true}, []string{ours}
	if !local.Addr().IsLoopback() { // each namespace has its own loopback
		others, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
		processes = append(processes, others...)
	}
	for _, p := range processes {
		ns := tables.Namespace(p)
		if seen[ns] {
			continue
		}
		seen[ns] = true
		found, err := has(p)
		if found {
			return filepath.Join(p, "net"), netip.AddrPort{}, nil
		}
		if err != nil && p == ours { // a process that has ended by now has no table
			return "", other, err
		}
	}
	if other.IsValid() {
		return "", other, nil
	}
	return "", other, fmt.Errorf("%w: no network namespace that can be looked into from here has the other end of a connection to %v: ask as root, and on the host (a container sees only its own processes), or something translates both addresses", ErrHidden, remote)
}

// answers asks the kernel for a socket, as proofs do: our end of a connection, which exists.
func answers(protocol byte, local, remote netip.AddrPort) error {
	s, err := diag.Open()
	if err != nil {
		return err
	}
	defer unix.Close(s)
	_, err = diag.Lookup(s, protocol, local, remote)
	return err
}

// listeners returns the sockets that listen at an address, and the user of the first. There are
// several with SO_REUSEPORT. A socket that names the address comes before one for all addresses.
func listeners(dir string, at netip.AddrPort) (inodes []uint64, uid int, err error) {
	var exact, any []tables.Socket
	err = tables.Each(dir, func(s tables.Socket) bool {
		switch {
		case !s.Listens || s.Local.Port() != at.Port():
		case s.Local.Addr() == at.Addr():
			exact = append(exact, s)
		case s.Local.Addr().IsUnspecified():
			any = append(any, s)
		}
		return false
	})
	if len(exact) == 0 {
		exact = any
	}
	if err == nil && len(exact) == 0 {
		err = fmt.Errorf("something accepts connections at %v, but no socket of its network namespace listens there", at)
	}
	for _, s := range exact {
		inodes, uid = append(inodes, s.Inode), exact[0].UID
	}
	return inodes, uid, err
}
