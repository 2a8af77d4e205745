package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wider makes one call, or a few, that scripts of seeds below 2 * WideFrom have not.
func (g *generator) wider(s *side, h holder) {
	switch g.IntN(12) {
	case 0:
		g.over(s, h)
	case 1:
		g.urgent(s, h)
	case 2:
		g.timeout(s, h)
	case 3:
		g.alias(h.end)
	case 4, 5:
		g.lookAtMany(h.end)
	case 6, 7:
		g.parts(s, h)
	case 8:
		g.sleepAndEnd(s, h)
	case 9:
		g.sleepOnSets(s, h)
	case 10:
		g.pass(s, h)
	case 11:
		if g.IntN(3) == 0 {
			g.fill(s, h)
		}
	}
}

// over puts a copy of a descriptor in the place of another one of the same process.
func (g *generator) over(s *side, h holder) {
	var to *side
	var old holder
	for _, x := range g.sides() {
		for _, y := range x.handles {
			if y.end == h.end && y != h && (x == s || len(x.handles) > 1) && g.IntN(2) == 0 {
				to, old = x, y
			}
		}
	}
	if to == nil || g.forked[to.root] && !g.forget(to, old) {
		return
	}
	for _, set := range g.sets[h.end] { // what has its number is another member from now on
		if m := (member{h.end, set, old.name}); to != s && g.members[m] != "" {
			g.say(h.end, "ctl %s del %s", set, old.name)
			delete(g.members, m)
		}
	}
	g.say(h.end, "dup2 %s %s", h.name, old.name)
	to.drop(func(x holder) bool { return x == old })
	s.handles = append(s.handles, holder{h.end, old.name, false})
}

// urgent sends a byte out of line, or looks for one.
func (g *generator) urgent(s *side, h holder) {
	switch g.IntN(4) {
	case 0:
		n := pick(g, sizes[:8])
		if s.shut || s.peer.closed || s.peer.urgent || s.peer.lowat || s.peer.unread+n > maxUnread || s.peer.writes >= maxUnreadWrites/2 {
			return // a second one behind bytes on the lane may push the first out
		}
		g.say(h.end, "send %s %d oob", h.name, n)
		s.peer.unread += n - 1
		s.peer.writes++
		s.peer.vague, s.peer.urgent, s.left = true, true, true
	case 1:
		g.say(h.end, "recv %s 1 oob", h.name)
	case 2:
		g.say(h.end, "atmark %s", h.name)
	case 3:
		if !g.marked() {
			g.say(h.end, "poll 0 %s %s", h.name, pick(g, []string{"pri", "in,pri", "in,out,pri,rdhup"}))
		}
	}
}

// timeout makes calls that give up.
func (g *generator) timeout(s *side, h holder) {
	const ms = 20
	n := pick(g, sizes)
	g.say(h.end, "set %s rcvtimeo %d", h.name, ms)
	switch g.IntN(4) {
	case 0:
		g.say(h.end, "read %s %d", h.name, n)
	case 1:
		g.say(h.end, "recv %s %d waitall", h.name, n)
	case 2:
		g.say(h.end, "recvmsg %s %d,%d peek", h.name, n/2, n-n/2)
		n = 0
	case 3:
		g.say(h.end, "recvmany %s %d,%d", h.name, n, n)
		n *= 2
	}
	g.say(h.end, "set %s rcvtimeo 0", h.name)
	s.take(n)
}

// An alias is another descriptor of a set; gone: the one by which it was made is closed.
type aliases struct {
	names []string
	gone  bool
}

// alias makes another descriptor of a set, or closes one.
func (g *generator) alias(end End) {
	set, ok := g.set(end)
	if !ok {
		return
	}
	a := g.aliases[set]
	if a == nil {
		a = &aliases{}
		g.aliases[set] = a
	}
	switch n := len(a.names); {
	case n > 0 && !a.gone && g.IntN(4) == 0:
		g.say(end, "close %s", set)
		a.gone = true
	case n > 1 || n > 0 && !a.gone && g.IntN(4) == 0:
		g.say(end, "close %s", a.names[0])
		a.names = a.names[1:]
	default:
		name := g.name("y")
		g.say(end, "%s=dup %s", name, set)
		a.names = append(a.names, name)
	}
}

// rename has a step name sets by any of their descriptors.
func (g *generator) rename(step *Step) {
	if step.Words[0] == "close" {
		return
	}
	for i, word := range step.Words {
		a := g.aliases[word]
		if a == nil {
			continue
		}
		names := slices.Clone(a.names)
		if !a.gone {
			names = append(names, word)
		}
		step.Words[i] = pick(g, names)
	}
}

// closeSet closes a set for good.
func (g *generator) closeSet(end End, set string) {
	a := g.aliases[set]
	if a == nil || !a.gone {
		g.say(end, "close %s", set)
	}
	for i := 0; a != nil && i < len(a.names); i++ {
		g.say(end, "close %s", a.names[i])
	}
	delete(g.aliases, set)
}

// lookAtMany polls several sets and connections.
func (g *generator) lookAtMany(end End) {
	var names []string
	for _, x := range g.sides() {
		for _, y := range x.handles {
			if y.end == end && g.IntN(3) > 0 {
				names = append(names, y.name)
			}
		}
	}
	for _, set := range g.sets[end] {
		if g.IntN(3) > 0 {
			names = append(names, set)
		}
	}
	names = names[:min(len(names), 8)]
	if len(names) == 0 {
		return
	}
	call := pick(g, []string{"poll", "ppoll", "select", "pselect"})
	var b strings.Builder
	for _, name := range names {
		events := pick(g, []string{"in", "out", "in,out", "in,rdhup", "pri"})
		if events == "pri" && g.marked() {
			events = "-"
		}
		if strings.Contains(call, "select") {
			events = g.selected()
		}
		fmt.Fprintf(&b, " %s %s", name, events)
	}
	g.say(end, "%s 0%s", call, b.String())
}

// parts moves many pieces at once.
func (g *generator) parts(s *side, h holder) {
	const most = 30
	n, total := 1+g.IntN(most), 0
	sizes := make([]string, n)
	for i := range sizes {
		size := pick(g, []int{0, 1, 7, 50, 121, 500})
		total += size
		sizes[i] = strconv.Itoa(size)
	}
	list := strings.Join(sizes, ",")
	if g.IntN(2) == 0 {
		if s.shut || s.peer.closed || s.peer.unread+total > maxUnread || s.peer.writes >= maxUnreadWrites/2 {
			return
		}
		s.peer.unread += total
		s.peer.writes++
		if n <= 8 && g.IntN(2) == 0 {
			g.say(h.end, "sendmany %s %s", h.name, list)
			s.peer.writes += n
			return
		}
		g.say(h.end, "%s %s %s", pick(g, []string{"writev", "sendmsg", "sendmmsg"}), h.name, list)
		return
	}
	call := pick(g, []string{"recvmsg", "recvmmsg", "recvmany"})
	if call == "recvmany" {
		list = strings.Join(sizes[:min(n, 8)], ",")
	}
	flags := pick(g, []string{"dontwait", "dontwait,waitall", "dontwait,peek"})
	g.say(h.end, "%s %s %s %s", call, h.name, list, flags)
	if !strings.HasSuffix(flags, "peek") {
		s.take(20000)
		s.vague = true
	}
}

// quiet: nothing is unread, and both ends may still write.
func (s *side) quiet() bool {
	p := s.peer
	return s.unread == 0 && !s.ended && !s.nonblock && !s.lowat && !s.vague && !s.shut && !p.closed && !p.shut && !p.ended && !p.nonblock
}

// sleepAndEnd has a thread sleep until the connection ends, in one way or the other.
func (g *generator) sleepAndEnd(s *side, h holder) {
	if !s.quiet() || g.IntN(2) == 0 {
		return
	}
	w := pick(g, s.peer.handles)
	g.line(fmt.Sprintf("%c&1 %s", h.end, pick(g, []string{"read " + h.name + " 100", "recv " + h.name + " 500 waitall",
		"poll 4000 " + h.name + " in,rdhup", "recvmsg " + h.name + " 5,5 peek", "select 4000 " + h.name + " r"})))
	g.say(h.end, "blocked 1")
	switch g.IntN(3) {
	case 0:
		g.say(w.end, "shutdown %s wr", w.name)
		s.peer.shut, s.ended = true, true
	case 1:
		g.say(h.end, "shutdown %s rd", h.name)
		s.ended = true
	case 2:
		g.say(h.end, "shutdown %s rdwr", h.name)
		s.ended, s.shut, s.peer.ended = true, true, true
	}
	g.say(h.end, "join 1")
}

// sleepOnSets has a thread sleep on a set in a set, or poll one, and wakes it.
func (g *generator) sleepOnSets(s *side, h holder) {
	if !s.quiet() {
		return
	}
	w := pick(g, s.peer.handles)
	inner, outer := g.name("e"), ""
	n := pick(g, sizes)
	g.say(h.end, "%s=epoll", inner)
	late := g.IntN(4)
	if late > 0 {
		g.add(inner, h, "in"+pick(g, []string{"", ",et", ",oneshot", ",rdhup"}), 5)
	}
	g.sets[h.end] = append(g.sets[h.end], inner)
	on := inner
	if g.IntN(2) == 0 {
		outer = g.name("e")
		g.nested[h.end] = true
		g.say(h.end, "%s=epoll", outer)
		g.say(h.end, "ctl %s add %s in%s 6", outer, inner, pick(g, []string{"", ",et", ",oneshot"}))
		on = outer
	}
	g.line(fmt.Sprintf("%c&1 %s", h.end, pick(g, []string{"wait " + on + " 4000", "pwait2 " + on + " 4000", "poll 4000 " + on + " in",
		"select 4000 " + on + " r", "ppoll 4000 " + on + " in " + h.name + " pri"})))
	g.say(h.end, "blocked 1")
	if late == 0 {
		g.add(inner, h, "in"+pick(g, []string{"", ",et", ",oneshot", ",rdhup"}), 5)
	}
	if late == 1 {
		g.modify(inner, h, "in,out"+pick(g, []string{"", ",et", ",oneshot"}), 5)
	} else {
		g.say(w.end, "write %s %d", w.name, n)
		s.unread += n
		s.writes++
	}
	g.say(h.end, "join 1")
	if outer != "" { // the older one is the outer one
		g.sets[h.end] = slices.Insert(g.sets[h.end], len(g.sets[h.end])-1, outer)
	}
}

// pass sends a descriptor to its own process, which takes the connection back to TCP. What
// keeps exec from that keeps this.
func (g *generator) pass(s *side, h holder) {
	p := s.peer
	lost := (s.unread > 0 || s.vague) && (g.variant.Switching || p.shut || p.closed || p.left || s.shut)
	if lost || g.strays(func(holder) bool { return false }, "") || g.nested[A] || g.nested[B] || len(s.handles) > 3 || g.IntN(2) == 0 {
		return
	}
	u, v, name := g.name("u"), g.name("v"), g.name("x")
	g.say(h.end, "%s=pair %s", u, v)
	g.say(h.end, "pass %s %s", u, h.name)
	g.say(h.end, "%s=take %s", name, v)
	g.say(h.end, "close %s", u)
	g.say(h.end, "close %s", v)
	s.handles = append(s.handles, holder{h.end, name, false})
	s.left = true
	g.remodify("et", 0)
}

// fill writes all that there is room for, and has it read.
func (g *generator) fill(s *side, h holder) {
	p := s.peer
	if !s.quiet() || !p.quiet() {
		return
	}
	r := pick(g, p.handles)
	g.say(h.end, "fill %s %d", h.name, pick(g, []int{119, 4096, 10000, 65536}))
	g.say(h.end, "poll 0 %s in,out,rdhup", h.name)
	g.say(r.end, "poll 0 %s in,out,rdhup", r.name)
	if set, ok := g.set(r.end); ok {
		g.say(r.end, "wait %s 0", set)
	}
	g.say(r.end, "drain %s $fill", r.name)
	if set, ok := g.set(h.end); ok {
		g.say(h.end, "wait %s 0", set)
	}
	g.say(h.end, "poll 0 %s in,out,rdhup", h.name)
	g.remodify("et", 0) // how often bytes came in between is TCP's affair
}
