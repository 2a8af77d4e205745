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
//
// It does not upgrade the connection: for that both ends have to move bytes, and this package does
// not know what a server wants to hear. So "yes" means that nothing stands against an upgrade. The
// library itself still asks for proof.
package reach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/internal/diag"
	"exnet/directsockets/internal/tables"
	"exnet/directsockets/launch"
	"exnet/directsockets/status"
	"exnet/fabric/dir"
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
		return v, fmt.Errorf("no connection, neither by TCP nor otherwise: %w", err)
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
	inode, uid, err := listener(dir, listens)
	if err != nil {
		return v, err
	}
	v.UID = uid
	owners := tables.Holders(inode)[inode]
	if len(owners) == 0 {
		return v, fmt.Errorf("%w: it belongs to user %d; ask as that user or as root", ErrHidden, uid)
	}
	// If several processes share the socket, any may answer. The first that publishes something
	// stands for them.
	p, found := status.Process{PID: owners[0]}, false
	for _, pid := range owners {
		if q, is := status.Of(pid); is {
			p, found = q, true
			break
		}
	}
	v.PID, v.Program, v.Fabric = p.PID, p.Program, p.Fabric
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err == nil && !found {
		v.Program = strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
	}
	return judge(v, p, found, fabric)
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

// judge applies the rules of both libraries.
func judge(v Verdict, p status.Process, found bool, fabric string) (Verdict, error) {
	who := fmt.Sprintf("%s (process %d)", v.Program, v.PID)
	switch {
	case !found && !tables.Loaded(v.PID):
		if all := obstacles(v.PID); len(all) > 0 {
			return v.no(who+" does not use the library: it "+strings.Join(all, ", and "),
				"if it only hands bytes on, as docker-proxy does for a published port, connect to the server behind it")
		}
		return v.no(who+" does not use the library", "start it by exn-tun run -- "+v.Program)
	case !found:
		return v.no(who+" has the library and keeps it off", status.Reason(1).Remedy())
	case errors.Is(p.Err, status.ErrVersion):
		return v.no(who+" uses another version of the library", status.Reason(6).Remedy())
	case p.Err != nil:
		return v, fmt.Errorf("%s: %w", who, p.Err)
	case p.Fabric == "":
		return v.no(who+" has no fabric directory", status.Reason(2).Remedy())
	case !p.In(fabric):
		return v.no(fmt.Sprintf("peer not in this fabric directory: %s uses %s, this is %s", who, p.Fabric, fabric),
			"start both with the same --fabric, as in exn-tun run --fabric "+p.Fabric+" -- CMD")
	}
	if why := trusted(fabric); why != "" {
		return v.no(why, status.Reason(2).Remedy())
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	theirs, theirErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", v.PID))
	if err == nil && theirErr == nil && ours != theirs {
		return v.no(who+" is in another user namespace", "run both in one: across user namespaces neither can prove who it is")
	}
	v.Upgrade = true
	return v, nil
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

// listener finds the inode and the user of the socket that listens at an address.
func listener(dir string, at netip.AddrPort) (inode uint64, uid int, err error) {
	found := false
	err = tables.Each(dir, func(s tables.Socket) bool {
		if s.Listens && s.Local.Port() == at.Port() && (s.Local.Addr() == at.Addr() || s.Local.Addr().IsUnspecified()) {
			inode, uid, found = s.Inode, s.UID, true
		}
		return found
	})
	if err == nil && !found {
		err = fmt.Errorf("something accepts connections at %v, but no socket of its network namespace listens there", at)
	}
	return inode, uid, err
}

// obstacles returns the reasons why a process's program could not use the library.
func obstacles(pid int) []string {
	path := fmt.Sprintf("/proc/%d/exe", pid)
	p, err := launch.Find(path, nil)
	if err != nil {
		return nil // we may not look at it
	}
	all := p.Obstacles(os.Getuid(), os.Getgid())
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], path+" ")
	}
	return all
}

// trusted returns why this user's programs will not use an existing fabric directory.
func trusted(fabric string) string {
	switch err := dir.Judge(fabric, dir.Policy()); {
	case errors.Is(err, fs.ErrNotExist):
		return "" // the library makes it
	case err != nil:
		return err.Error()
	case unix.Access(fabric, unix.W_OK|unix.X_OK) != nil:
		return "this user may not write into " + fabric
	}
	return ""
}
