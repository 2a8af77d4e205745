package status

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"exnet/directsockets/internal/tables"
	"exnet/directsockets/launch"
)

// A Peer is the program at the other end of a socket.
type Peer struct {
	PID      int // 0: it is not known
	Program  string
	Fabric   string // its fabric directory, if it has the library and another one
	Reason   Reason // why it keeps this connection on TCP, if it has the library and does
	Obstacle string // why it could not have the library, if it has not
}

func (p Peer) String() string { return fmt.Sprintf("%s (process %d)", p.Program, p.PID) }

// Why is the reason in words for people: with who is at the other end, if [Explain] has
// found that and it matters. It is empty where there is none.
func (s Socket) Why() string {
	switch {
	case s.Reason == None:
		return ""
	case s.Peer.PID == 0 && s.Reason == Refused && s.Peer.Reason != None:
		return fmt.Sprintf("%v: %v", s.Reason, s.Peer.Reason)
	case s.Peer.PID == 0:
		return s.Reason.String()
	case s.Reason == NoLibrary && s.Peer.Obstacle != "":
		return fmt.Sprintf("%v does not use the library: it %s", s.Peer, s.Peer.Obstacle)
	case s.Reason == NoLibrary:
		return fmt.Sprintf("%v does not use the library: start it with exn-tun run", s.Peer)
	case s.Reason == Refused && s.Peer.Reason != None:
		return fmt.Sprintf("%v: %v: %v", s.Reason, s.Peer, s.Peer.Reason)
	case s.Reason == NoPeer && s.Peer.Fabric != "":
		return fmt.Sprintf("%v: %v uses %s", s.Reason, s.Peer, s.Peer.Fabric)
	}
	return s.Reason.String()
}

// Remedy is what helps, as far as that is known of this socket.
func (s Socket) Remedy() string {
	switch {
	case s.Peer.PID == 0:
	case s.Reason == NoLibrary && s.Peer.Obstacle != "":
		return "if it only hands bytes on, as docker-proxy does for a published port, connect to the server behind it"
	case s.Reason == NoLibrary:
		return fmt.Sprintf("start it with exn-tun run -- %s", s.Peer.Program)
	case s.Reason == Refused && s.Peer.Reason != None:
		return s.Peer.Reason.Remedy()
	case s.Reason == NoPeer && s.Peer.Fabric != "":
		return fmt.Sprintf("start both with the same --fabric, as in exn-tun run --fabric %s", s.Peer.Fabric)
	}
	return s.Reason.Remedy()
}

// An owner is a socket with its process.
type owner struct {
	p *Process
	s *Socket
}

// A place is a socket of a network namespace.
type place struct {
	net           string
	local, remote netip.AddrPort
}

// Explain finds out who is at the other end of the sockets that are not on a lane, all being
// what [All] has found. What a process publishes is what it knows itself: that
// nobody has answered yet. Whoever can see both ends knows why: the other program has not
// the library, has another fabric directory, or has a reason of its own. Such a socket is
// on TCP, and Peer says who.
//
// What it cannot see it leaves as it is.
func Explain(all []Process) {
	byPlace, open := map[place]owner{}, map[place][]owner{}
	for i := range all {
		p := &all[i]
		net := tables.Namespace(fmt.Sprintf("/proc/%d", p.PID))
		for k := range p.Sockets {
			s := &p.Sockets[k]
			if !s.Local.IsValid() || !s.Remote.IsValid() {
				continue
			}
			byPlace[place{net, s.Local, s.Remote}] = owner{p, s}
			if unexplained(s) {
				other := place{net, s.Remote, s.Local}
				open[other] = append(open[other], owner{p, s})
			}
		}
	}
	seen := map[*Socket]Socket{} // as published, for others are explained from it
	for _, o := range byPlace {
		seen[o.s] = *o.s
	}
	for at, ours := range open {
		if theirs, found := byPlace[at]; found {
			for _, o := range ours {
				o.explainBy(theirs.p, seen[theirs.s])
			}
			delete(open, at)
		}
	}
	explainPlain(all, open)
}

// unexplained: it is on TCP, and the reason may lie at the other end.
func unexplained(s *Socket) bool {
	switch s.State {
	case Counting, Offered, Attaching, TCP:
		return slices.Contains([]Reason{None, NoPeer, NoLibrary, Refused}, s.Reason)
	}
	return false
}

// explainBy takes what the other end publishes.
func (o owner) explainBy(p *Process, s Socket) {
	peer := Peer{PID: p.PID, Program: p.Program}
	switch {
	case !p.In(o.p.Fabric):
		peer.Fabric = p.Fabric
		o.s.State, o.s.Reason, o.s.Peer = TCP, NoPeer, peer
	case s.State == TCP && !unexplained(&s):
		peer.Reason = s.Reason
		o.s.State, o.s.Peer = TCP, peer
		if s.Reason != Version { // of that both are told
			o.s.Reason = Refused
		} else {
			o.s.Reason = Version
		}
	case s.State == Counting && s.Reason != None && !unexplained(&s): // for now
		peer.Reason = s.Reason
		o.s.Reason, o.s.Peer = Refused, peer
	case o.s.Reason == NoPeer || o.s.Reason == NoLibrary: // it has the library, and is not busy yet
		o.s.State, o.s.Reason, o.s.Peer = max(o.s.State, Counting), None, peer
		if o.s.State == TCP {
			o.s.State = Counting
		}
	}
}

// explainPlain looks for those whose other end no program with the library has published.
func explainPlain(all []Process, open map[place][]owner) {
	process := map[string]string{} // of a network namespace: one that is in it
	for at, ours := range open {
		process[at.net] = fmt.Sprintf("/proc/%d/net", ours[0].p.PID)
	}
	inodes := map[uint64]place{}
	for net, dir := range process {
		tables.Each(dir, func(t tables.Socket) bool { // what cannot be read stays as it is
			if at := (place{net, t.Local, t.Remote}); open[at] != nil && t.Inode != 0 {
				inodes[t.Inode] = at
			}
			return false
		})
	}
	if len(inodes) == 0 {
		return
	}
	var asked []uint64
	for inode := range inodes {
		asked = append(asked, inode)
	}
	publishes := map[int]bool{}
	for _, p := range all {
		publishes[p.PID] = true
	}
	known := map[int]Peer{}
	for inode, pids := range tables.Holders(asked...) {
		if len(pids) == 0 || slices.ContainsFunc(pids, func(pid int) bool { return publishes[pid] }) {
			continue // not to be seen, or not tracked, as of 16384
		}
		peer, found := known[pids[0]]
		if !found {
			peer = plainPeer(pids[0])
			known[pids[0]] = peer
		}
		for _, o := range open[inodes[inode]] {
			o.s.State, o.s.Reason, o.s.Peer = TCP, NoLibrary, peer
			if peer.Reason != None {
				o.s.Reason = Refused
			}
		}
	}
}

// plainPeer looks at a process that publishes nothing.
func plainPeer(pid int) Peer {
	peer := Peer{PID: pid}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		peer.Program = harmless(name)
	}
	if tables.Loaded(pid) {
		peer.Reason = setting // it is kept off
		return peer
	}
	path := fmt.Sprintf("/proc/%d/exe", pid)
	if program, err := launch.Find(path, nil); err == nil {
		if obstacles := program.Obstacles(os.Getuid(), os.Getgid()); len(obstacles) > 0 {
			peer.Obstacle = strings.TrimPrefix(obstacles[0], path+" ")
		}
	}
	return peer
}
