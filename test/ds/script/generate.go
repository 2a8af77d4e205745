package script

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Bounds on what a generated script leaves unread, so that a blocking write
// never blocks: TCP's smallest send buffer and a lane both take this much.
const (
	maxUnread       = 32 << 10 // bytes
	maxUnreadWrites = 24
)

// sizes are what is read and written: around the thresholds of the lane (one
// slot, a page, the default counting threshold) and small.
var sizes = []int{1, 2, 7, 50, 119, 120, 121, 500, 4095, 4096, 4097, 9000, 16383, 16385, 20000}

// Generate makes a script of about n steps. It follows what is queued on each
// connection just closely enough to know which calls may not be blocking ones.
func Generate(seed uint64, n int, v Variant) Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), sets: make(map[End][]string), members: make(map[member]string), forked: make(map[End]bool), dead: make(map[End]bool), nested: make(map[End]bool), aliases: make(map[string]*aliases)}
	g.script.Name = fmt.Sprintf("seed-%d", seed)
	g.variant, g.level = v, seed/WideFrom
	g.connect()
	for len(g.script.Steps) < n && !g.dead[A] && !g.dead[B] {
		g.move()
	}
	// Both ends say what they see at the end.
	for _, s := range g.sides() {
		for _, h := range s.handles {
			g.say(h.end, "poll 0 %s in,out,rdhup", h.name)
			g.say(h.end, "recv %s 40000 dontwait", h.name)
			g.say(h.end, "recv %s 10 dontwait", h.name)
		}
	}
	return g.script
}

type generator struct {
	*rand.Rand
	script      Script
	variant     Variant
	connections []*connection
	sets        map[End][]string  // epoll sets
	members     map[member]string // what is asked of each
	forked      map[End]bool
	dead        map[End]bool
	nested      map[End]bool        // its sets have sets in them
	aliases     map[string]*aliases // of a set
	level       uint64              // of wideness
	names       int
}

// A connection has two sides; side 0 is at end a.
type connection [2]*side

// A side is one end of a connection with everyone who holds it.
type side struct {
	root     End // a or b
	handles  []holder
	peer     *side
	unread   int  // bytes sent to this side and not read
	writes   int  // how many writes those came by, at most
	ended    bool // reading never blocks: the end, a reset, or shutdown here
	shut     bool // nothing more may be written here
	lowat    bool
	vague    bool // more may be unread
	urgent   bool // bytes came out of line
	nonblock bool
	closed   bool
	left     bool // a holder has run another program, so it is back on TCP
}

type holder struct {
	end     End
	name    string
	cloexec bool
}

// A member is a handle in an epoll set.
type member struct {
	end         End
	set, handle string
}

func (g *generator) sides() []*side {
	var all []*side
	for _, c := range g.connections {
		for _, s := range c {
			if !s.closed && len(s.handles) > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

func (g *generator) say(end End, format string, args ...any) {
	line := fmt.Sprintf("%c %s", end, fmt.Sprintf(format, args...))
	g.line(line)
}

func (g *generator) line(line string) {
	step, err := parseStep(line, g.variant)
	if err != nil {
		panic(err) // a line of this file
	}
	g.rename(&step)
	g.script.Steps = append(g.script.Steps, step)
}

func (g *generator) name(prefix string) string {
	g.names++
	return fmt.Sprintf("%s%d", prefix, g.names)
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) connect() {
	first := len(g.connections) == 0
	c, d := "c", "d"
	if first {
		g.line("b l=listen $F")
	} else {
		c, d = g.name("c"), g.name("d")
	}
	g.line("a " + c + "=socket $F")
	g.line("a connect " + c + " $F $port")
	g.line("b " + d + "=accept l")
	g.line("a set " + c + " nodelay 1")
	g.line("b set " + d + " nodelay 1")
	if g.variant.Warm {
		g.line("b&7 pong " + d + " 40 600")
		g.line("a ping " + c + " 40 600")
		g.line("b join 7")
	}
	x, y := &side{root: A, handles: []holder{{A, c, false}}}, &side{root: B, handles: []holder{{B, d, false}}}
	x.peer, y.peer = y, x
	g.connections = append(g.connections, &connection{x, y})
}

// move adds one call, or a few that belong together.
func (g *generator) move() {
	sides := g.sides()
	if len(sides) == 0 {
		if len(g.connections) > 3 {
			g.dead[A] = true
			return
		}
		if g.forked[A] || g.forked[B] {
			g.dead[A] = true
			return
		}
		g.connect()
		return
	}
	s := pick(g, sides)
	h := pick(g, s.handles)
	if g.level >= 2 && g.IntN(4) == 0 {
		g.wider(s, h)
		return
	}
	if g.level >= 1 && g.IntN(8) == 0 {
		g.wide(s, h)
		return
	}
	switch p := g.IntN(100); {
	case p < 26:
		g.write(s, h)
	case p < 50:
		g.read(s, h)
	case p < 60:
		g.block(s, h)
	case p < 72:
		g.look(s, h)
	case p < 84:
		g.epoll(s, h)
	case p < 88:
		g.option(s, h)
	case p < 91:
		if len(s.handles) < 4 {
			name, call := g.name("x"), pick(g, []string{"dup", "fdup"})
			g.say(h.end, "%s=%s %s", name, call, h.name)
			s.handles = append(s.handles, holder{h.end, name, call == "fdup"})
		}
	case p < 94:
		g.close(s, h)
	case p < 96:
		g.shutdown(s, h)
	case p < 97:
		if len(g.connections) < 3 && !g.forked[A] && !g.forked[B] {
			g.connect()
		}
	case p < 98:
		g.fork(s.root)
	case p < 99:
		if g.IntN(2) == 0 {
			g.exec(h.end)
		}
	default:
		g.kill(s, h)
	}
}

func (g *generator) write(s *side, h holder) {
	n := pick(g, sizes)
	if s.peer.unread+n > maxUnread || s.peer.writes >= maxUnreadWrites {
		return
	}
	flags := pick(g, []string{"", "", " nosignal", " dontwait", " dontwait,nosignal"})
	if s.peer.closed || s.shut {
		flags = " dontwait,nosignal"
	}
	switch call := pick(g, []string{"write", "send", "sendto", "writev", "sendmsg", "sendmmsg", "sendfile"}); call {
	case "write":
		g.say(h.end, "write %s %d", h.name, n)
	case "writev":
		g.say(h.end, "writev %s %d,%d", h.name, n/3, n-n/3)
	case "sendmsg", "sendmmsg":
		g.say(h.end, "%s %s %d,%d%s", call, h.name, n/2, n-n/2, flags)
	case "sendfile":
		g.say(h.end, "sendfile %s %d %d", h.name, g.IntN(3)*100, n)
	default:
		g.say(h.end, "%s %s %d%s", call, h.name, n, flags)
	}
	if !s.shut && !s.peer.closed {
		s.peer.unread += n
		s.peer.writes++
	}
}

// read makes a call that cannot block: there is something, or the end, or it
// says that it does not want to wait.
func (g *generator) read(s *side, h holder) {
	n := pick(g, sizes)
	ready := s.unread > 0 && !s.lowat || s.nonblock
	var flags []string
	if g.IntN(4) == 0 {
		flags = append(flags, "peek")
	}
	if g.IntN(4) == 0 && (n <= s.unread || s.nonblock) {
		flags = append(flags, "waitall")
	}
	if !ready || s.ended || s.peer.closed || g.IntN(4) == 0 {
		flags = append(flags, "dontwait")
	}
	all := ""
	if len(flags) > 0 {
		all = " " + strings.Join(flags, ",")
	}
	call := pick(g, []string{"recv", "recvfrom", "recvmsg", "recvmmsg"})
	if all == "" && g.IntN(2) == 0 {
		call = pick(g, []string{"read", "readv"})
	}
	switch call {
	case "readv", "recvmsg", "recvmmsg":
		g.say(h.end, "%s %s %d,%d%s", call, h.name, n/2, n-n/2, all)
	default:
		g.say(h.end, "%s %s %d%s", call, h.name, n, all)
	}
	// After a reset recvmmsg may tell that and take nothing.
	if !slices.Contains(flags, "peek") && !(call == "recvmmsg" && (s.peer.closed || g.level > 0 && s.ended)) {
		s.take(n)
	}
}

func (s *side) take(n int) {
	s.unread = max(0, s.unread-n)
	if s.unread == 0 {
		s.writes = 0
	}
}

// block lets a thread sleep on an empty connection and wakes it by a write.
func (g *generator) block(s *side, h holder) {
	p := s.peer
	if s.unread > 0 || s.ended || s.nonblock || s.lowat || s.vague || s.shut || p.closed || p.shut || p.nonblock {
		return
	}
	w := pick(g, p.handles)
	n := pick(g, sizes)
	sent := pick(g, sizes)
	peeked := false
	switch g.IntN(6) {
	case 0:
		g.line(fmt.Sprintf("%c&1 poll 4000 %s in,rdhup", h.end, h.name))
		peeked = true
	case 1:
		g.line(fmt.Sprintf("%c&1 select 4000 %s r", h.end, h.name))
		peeked = true
	case 2:
		set := g.name("e")
		g.say(h.end, "%s=epoll", set)
		g.add(set, h, "in"+pick(g, []string{"", ",et", ",oneshot", ",rdhup"}), 5)
		g.line(fmt.Sprintf("%c&1 %s %s 4000", h.end, pick(g, []string{"wait", "pwait", "pwait2"}), set))
		g.sets[h.end] = append(g.sets[h.end], set)
		peeked = true
	case 3:
		sent = max(sent, n)
		g.line(fmt.Sprintf("%c&1 recv %s %d waitall", h.end, h.name, n))
	default:
		g.line(fmt.Sprintf("%c&1 read %s %d", h.end, h.name, n))
	}
	g.say(h.end, "blocked 1")
	g.say(w.end, "write %s %d", w.name, sent)
	g.say(h.end, "join 1")
	s.unread += sent
	s.writes++
	if !peeked {
		s.take(n)
	}
}

func (g *generator) option(s *side, h holder) {
	switch g.IntN(4) {
	case 0:
		s.lowat = g.IntN(2) == 0 && !s.urgent
		low := 1
		if s.lowat {
			low = pick(g, sizes[:8])
		}
		g.say(h.end, "set %s rcvlowat %d", h.name, low)
	case 1:
		s.nonblock = g.IntN(2) == 0
		on := 0
		if s.nonblock {
			on = 1
		}
		g.say(h.end, "nonblock %s %d%s", h.name, on, pick(g, []string{"", " ioctl"}))
	case 2:
		g.say(h.end, "get %s %s", h.name, pick(g, []string{"rcvlowat", "nodelay", "type", "linger", "keepalive"}))
	default:
		g.say(h.end, "%s %s $port", pick(g, []string{"sockname", "peername"}), h.name)
	}
}

func (g *generator) close(s *side, h holder) {
	if g.forked[s.root] && !g.forget(s, h) {
		return
	}
	if len(s.handles) == 1 {
		if g.IntN(3) > 0 {
			return // most connections should live longer
		}
		if g.IntN(3) == 0 {
			g.say(h.end, "set %s linger 0", h.name)
		}
	}
	g.say(h.end, "close %s", h.name)
	s.drop(func(x holder) bool { return x == h })
	if s.closed {
		maps.DeleteFunc(g.members, func(m member, _ string) bool { return m.end == h.end && m.handle == h.name })
	}
}

// forget takes the last handle that a process has of a side out of its sets, while another
// process has one, too, since the set forgets it then ("Where a connection differs from TCP" in
// docs/options.md).
// False: a set has it by a number that is closed already, and cannot be told.
func (g *generator) forget(s *side, h holder) bool {
	others := len(s.handles) > 1
	for _, x := range s.handles {
		others = others && (x == h || x.end != h.end)
	}
	if !others {
		return true
	}
	if g.strays(func(holder) bool { return false }, "") {
		return false
	}
	for _, set := range g.sets[h.end] {
		if m := (member{h.end, set, h.name}); g.members[m] != "" {
			g.say(h.end, "ctl %s del %s", set, h.name)
			delete(g.members, m)
		}
	}
	return true
}

// drop forgets holders; the last one takes the side with it.
func (s *side) drop(gone func(holder) bool) {
	if s.closed {
		return
	}
	s.handles = slices.DeleteFunc(s.handles, gone)
	if len(s.handles) == 0 {
		s.closed = true
		s.peer.ended = true
	}
}

func (g *generator) shutdown(s *side, h holder) {
	switch g.IntN(5) {
	case 0:
		g.say(h.end, "shutdown %s rd", h.name)
		s.ended = true
	case 1:
		g.say(h.end, "shutdown %s rdwr", h.name)
		s.ended, s.shut, s.peer.ended = true, true, true
	default:
		g.say(h.end, "shutdown %s wr", h.name)
		s.shut, s.peer.ended = true, true
	}
}

// fork gives all that an end holds to a child too. Its sets are not used by the
// child: what is asked of a lane there after the fork is asked for one process only.
func (g *generator) fork(root End) {
	if g.forked[root] || g.dead[root] {
		return
	}
	g.forked[root] = true
	child := root - 'a' + 'A'
	g.say(root, "fork")
	for _, c := range g.connections {
		for _, s := range c {
			if s.root != root {
				continue
			}
			for _, h := range slices.Clone(s.handles) {
				s.handles = append(s.handles, holder{child, h.name, h.cloexec})
			}
		}
	}
}

// exec replaces the program of one process, where that is to look like TCP. These
// differences ("Where a connection differs from TCP" in docs/options.md) keep it from that:
//
//   - bytes unread whose writer had shut down, closed or left the lane are lost: not run
//     then, which while switching at random any bytes may be;
//   - a process that dies with bytes unread: not run, if its peer has done so;
//   - a one-shot member that has fired: those of the process are asked for anew before;
//   - an edge-triggered member: those of both ends are asked for anew afterwards.
func (g *generator) exec(end End) {
	closing := func(x holder) bool { return x.end == end && x.cloexec }
	kinds := []string{"et", "oneshot"}
	if g.level > 0 {
		kinds = []string{""} // "a member that was added by a copy which is closed by now"
	}
	if g.strays(closing, kinds...) || g.dies(closing) || g.nested[A] || g.nested[B] {
		return
	}
	var survive []*side
	for _, s := range g.sides() {
		if !slices.ContainsFunc(s.handles, func(x holder) bool { return x.end == end && !x.cloexec }) {
			continue
		}
		if p := s.peer; (s.unread > 0 || s.vague) && (g.variant.Switching || p.shut || p.closed || p.left || s.shut) {
			return
		}
		survive = append(survive, s)
	}
	g.remodify("oneshot", end)
	g.say(end, "exec")
	for _, s := range survive {
		s.left = true
	}
	g.drop(closing)
	g.remodify("et", 0)
	if g.level > 0 && g.variant.Switching { // what it adds to a set from before goes back, too
		g.sets[end] = nil
	}
}

// drop forgets holders of all connections.
func (g *generator) drop(gone func(holder) bool) {
	for _, c := range g.connections {
		for _, s := range c {
			s.drop(gone)
		}
	}
}

// strays says whether a descriptor that is closed, or will be, is in a set, by an interest
// of one of these kinds, that goes on reporting it because a copy is open: nobody can ask
// for it anew.
func (g *generator) strays(closing func(holder) bool, kinds ...string) bool {
	open := make(map[member]bool)
	for _, s := range g.sides() {
		for _, h := range s.handles {
			open[member{end: h.end, handle: h.name}] = !closing(h)
		}
	}
	for m, interest := range g.members {
		kind := func(k string) bool { return strings.Contains(interest, k) }
		if !g.dead[m.end] && !open[member{end: m.end, handle: m.handle}] && slices.ContainsFunc(kinds, kind) {
			return true
		}
	}
	return false
}

// dies says whether the last holder of a side goes without closing it, with bytes
// unread that may have come by the lane, while its peer is back on TCP.
func (g *generator) dies(gone func(holder) bool) bool {
	for _, s := range g.sides() {
		if s.peer.left && (s.unread > 0 || s.vague) && !slices.ContainsFunc(s.handles, func(x holder) bool { return !gone(x) }) {
			return true
		}
	}
	return false
}

// kill ends the child of an end, or the end itself and so the script.
func (g *generator) kill(s *side, h holder) {
	if h.end == s.root && (g.forked[s.root] || g.IntN(3) > 0) {
		return
	}
	gone := func(x holder) bool { return x.end == h.end }
	if g.dies(gone) {
		return
	}
	g.say(h.end, "kill9")
	if h.end == s.root {
		g.dead[h.end] = true
	} else {
		g.say(s.root, "reap")
	}
	g.drop(gone)
	maps.DeleteFunc(g.members, func(m member, _ string) bool { return m.end == h.end })
}
