package script

import (
	"cmp"
	"slices"
	"strings"
)

// What asks for readiness.

func (g *generator) look(s *side, h holder) {
	events := pick(g, []string{"in", "out", "in,out", "in,rdhup", "in,out,rdhup,pri", "-"})
	if g.marked() {
		events = strings.TrimSuffix(events, ",pri")
	}
	switch g.IntN(5) {
	case 0:
		g.say(h.end, "fionread %s", h.name)
	case 1:
		g.say(h.end, "%s 0 %s %s", pick(g, []string{"select", "pselect"}), h.name, g.selected())
	case 2:
		g.say(h.end, "get %s error", h.name)
	default:
		g.say(h.end, "%s 0 %s %s", pick(g, []string{"poll", "ppoll"}), h.name, events)
	}
}

func (g *generator) epoll(s *side, h holder) {
	sets := g.sets[h.end]
	if len(sets) == 0 || g.IntN(6) == 0 {
		set := g.name("e")
		g.say(h.end, "%s=epoll", set)
		g.sets[h.end] = append(sets, set)
		g.add(set, h, g.interest(), g.IntN(1000))
		return
	}
	set := pick(g, sets)
	switch p := g.IntN(10); {
	case p < 6:
		g.say(h.end, "%s %s 0", pick(g, []string{"wait", "pwait", "pwait2"}), set)
	case p < 7:
		g.add(set, h, g.interest(), g.IntN(1000))
	case p < 9:
		g.modify(set, h, g.interest(), g.IntN(1000))
	default:
		g.say(h.end, "ctl %s del %s", set, h.name)
		delete(g.members, member{h.end, set, h.name})
	}
}

func (g *generator) add(set string, h holder, interest string, data int) {
	g.say(h.end, "ctl %s add %s %s %d", set, h.name, interest, data)
	m := member{h.end, set, h.name}
	if g.members[m] == "" { // else EEXIST
		g.members[m] = interest
	}
}

func (g *generator) modify(set string, h holder, interest string, data int) {
	g.say(h.end, "ctl %s mod %s %s %d", set, h.name, interest, data)
	m := member{h.end, set, h.name}
	if g.members[m] != "" { // else ENOENT
		g.members[m] = interest
	}
}

// remodify asks anew for the members of a kind, of one end or, with 0, of all.
func (g *generator) remodify(kind string, end End) {
	var some []member
	for m, interest := range g.members {
		if (end == 0 || m.end == end) && !g.dead[m.end] && strings.Contains(interest, kind) {
			some = append(some, m)
		}
	}
	slices.SortFunc(some, func(x, y member) int {
		return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.set, y.set), cmp.Compare(x.handle, y.handle))
	})
	for _, m := range some {
		g.modify(m.set, holder{end: m.end, name: m.handle}, g.members[m], g.IntN(1000))
	}
}

func (g *generator) interest() string {
	words := []string{pick(g, []string{"in", "in", "in,out", "out", "rdhup", "in,rdhup"})}
	words = append(words, pick(g, [][]string{nil, nil, {"et"}, {"et"}, {"oneshot"}, {"et", "oneshot"}})...)
	return strings.Join(words, ",")
}

// marked: urgent data may be unread in front of an end, and then the library may say that
// there is some after the end has been told.
func (g *generator) marked() bool {
	return slices.ContainsFunc(g.sides(), func(s *side) bool { return s.urgent && s.ended })
}

// selected is what select asks for.
func (g *generator) selected() string {
	r := pick(g, []string{"r", "w", "rw", "rwx"})
	if g.marked() {
		r = strings.TrimSuffix(r, "x")
	}
	return r
}
