package script

import "slices"

// WideFrom is the first seed whose script also nests sets, splices, throws bytes away and
// waits exclusively; from twice that on it has the calls of generate_wider.go, too. Seeds
// below stay what they were when they found something.
const WideFrom = 1 << 20

// wide makes one call that scripts of lower seeds have not.
func (g *generator) wide(s *side, h holder) {
	switch g.IntN(6) {
	case 0:
		g.nest(h.end)
	case 1:
		if set, ok := g.set(h.end); ok {
			g.say(h.end, "%s 0 %s %s", pick(g, []string{"poll", "ppoll"}), set, pick(g, []string{"in", "in,out", "in,rdhup"}))
		}
	case 2:
		if set, ok := g.set(h.end); ok {
			g.add(set, h, pick(g, []string{"in,excl", "in,out,excl", "out,excl"}), g.IntN(1000))
		}
	case 3:
		g.discard(s, h)
	case 4:
		g.splice(s, h)
	case 5:
		if set, ok := g.set(h.end); ok && g.IntN(4) == 0 && !g.nested[h.end] {
			g.closeSet(h.end, set)
			g.sets[h.end] = slices.DeleteFunc(g.sets[h.end], func(x string) bool { return x == set })
			for m := range g.members {
				if m.end == h.end && m.set == set {
					delete(g.members, m)
				}
			}
		}
	}
}

func (g *generator) set(end End) (string, bool) {
	if len(g.sets[end]) == 0 {
		return "", false
	}
	return pick(g, g.sets[end]), true
}

// nest puts a set into an older one.
func (g *generator) nest(end End) {
	sets := g.sets[end]
	if len(sets) < 2 {
		return
	}
	outer := g.IntN(len(sets) - 1)
	inner := outer + 1 + g.IntN(len(sets)-outer-1)
	g.nested[end] = true
	g.say(end, "ctl %s %s %s %s %d", sets[outer], pick(g, []string{"add", "add", "add", "mod", "del"}), sets[inner],
		pick(g, []string{"in", "in,et", "in,oneshot"}), g.IntN(1000))
}

// discard reads bytes that are here into nothing.
func (g *generator) discard(s *side, h holder) {
	n, flags := pick(g, sizes), "trunc"
	if s.unread == 0 || s.lowat || s.ended || s.peer.closed {
		flags = "trunc,dontwait"
	}
	g.say(h.end, "recv %s %d %s", h.name, n, flags)
	s.take(n)
}

// splice moves what is here, or some of it, to where the same process writes. Its flag is
// for the pipe alone: of a socket that blocks it waits for bytes.
func (g *generator) splice(s *side, h holder) {
	if s.unread == 0 && !s.nonblock && !s.ended || s.urgent { // TCP's stops for good in front of a mark
		return
	}
	var to []*side
	var by []holder
	for _, x := range g.sides() {
		for _, y := range x.handles {
			if y.end == h.end && !x.shut && !x.peer.closed && x.peer.unread < maxUnread/2 && x.peer.writes < maxUnreadWrites/2 {
				to, by = append(to, x), append(by, y)
			}
		}
	}
	if len(to) == 0 || h.end != s.root || g.forked[s.root] {
		return
	}
	n, i := pick(g, sizes), g.IntN(len(to))
	p, q := g.name("p"), g.name("q")
	g.say(h.end, "%s=pipe %s", p, q)
	g.say(h.end, "splice %s %s %d nonblock", h.name, q, n)
	s.take(n)
	g.say(h.end, "splice %s %s %d nonblock", p, by[i].name, n)
	to[i].peer.vague = true
	to[i].peer.writes++
}
