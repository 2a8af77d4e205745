// Package policy holds an administrator's decisions about direct sockets on a host: which
// connections may use lanes, and with which settings programs run.
//
//	p, err := policyfile.Read("/etc/exnet/policy.toml")
//	env = append(env, policy.Variable+"="+p.String())
//
//	p := policy.Decode(os.Getenv(policy.Variable))  // in a program
//	if p.Upgrades(name, policy.Out, 6379, peer) { … }
//
// Rules are tried in order, and the first that matches a program or a connection applies. A program
// gets all rules through its environment, as String writes them, and its children inherit them. So
// a rule for postgres applies to a postgres that a shell starts. A setting in the environment
// itself (EXN_DS_SPIN_US) overrides the rules. The C library reads the same text
// (../preload/policy.c).
//
// # What it is not
//
// It is no access control: whoever sets the environment of a program decides. It says what programs
// should do, not what they can do.
package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Variable names the environment variable that the library reads.
const Variable = "EXN_DS_POLICY"

// A Policy is a list of rules, in order.
type Policy struct {
	Programs    []Program
	Connections []Connection
}

// A Program is a rule with settings for programs.
type Program struct {
	Name     string            // a pattern: * and ?
	Settings map[string]string // environment variables
}

// Directions of a connection, from its program's view.
const (
	In  = "in"  // accepted
	Out = "out" // connected
	Any = "any"
)

// A Connection is a rule for connections.
type Connection struct {
	Program   string // a pattern
	Direction string
	Ports     []Ports
	Addresses []netip.Prefix
	Upgrade   bool
}

// Ports is a range of ports, from First to Last inclusive.
type Ports struct{ First, Last uint16 }

// String encodes the rules for the library.
func (p *Policy) String() string {
	var b strings.Builder
	for _, g := range p.Programs {
		fmt.Fprintf(&b, "program %s", g.Name)
		for _, name := range slices.Sorted(maps.Keys(g.Settings)) {
			fmt.Fprintf(&b, " %s=%s", name, g.Settings[name])
		}
		b.WriteByte(';')
	}
	for _, c := range p.Connections {
		upgrade := "no"
		if c.Upgrade {
			upgrade = "yes"
		}
		var ports, addresses []string
		for _, r := range c.Ports {
			ports = append(ports, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
		for _, a := range c.Addresses {
			addresses = append(addresses, a.String())
		}
		fmt.Fprintf(&b, "connection %s %s %s %s %s;", c.Program, c.Direction, list(ports), list(addresses), upgrade)
	}
	return b.String()
}

func list(all []string) string {
	if len(all) == 0 {
		return "any"
	}
	return strings.Join(all, ",")
}

// Decode parses the result of String. It leaves out what it does not understand; the tool that
// wrote it reports that.
func Decode(text string) *Policy {
	p := new(Policy)
	for record := range strings.SplitSeq(text, ";") {
		switch words := strings.Fields(record); {
		case len(words) >= 2 && words[0] == "program":
			g := Program{Name: words[1], Settings: map[string]string{}}
			for _, w := range words[2:] {
				name, value, _ := strings.Cut(w, "=")
				g.Settings[name] = value
			}
			p.Programs = append(p.Programs, g)
		case len(words) == 6 && words[0] == "connection":
			c := Connection{Program: words[1], Direction: words[2], Upgrade: words[5] == "yes"}
			var okPorts, okAddresses bool
			c.Ports, okPorts = portsOf(words[3])
			c.Addresses, okAddresses = addressesOf(words[4])
			if okPorts && okAddresses {
				p.Connections = append(p.Connections, c)
			}
		}
	}
	return p
}

func portsOf(list string) (all []Ports, ok bool) {
	if list == Any {
		return nil, true
	}
	for word := range strings.SplitSeq(list, ",") {
		r, ok := ParsePorts(word)
		if !ok {
			return nil, false
		}
		all = append(all, r)
	}
	return all, true
}

// ParsePorts parses a port, or a range like 8000-8010.
func ParsePorts(text string) (r Ports, ok bool) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	return Ports{uint16(a), uint16(b)}, errA == nil && errB == nil && a <= b
}

func addressesOf(list string) (all []netip.Prefix, ok bool) {
	if list == Any {
		return nil, true
	}
	for word := range strings.SplitSeq(list, ",") {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			return nil, false
		}
		all = append(all, p)
	}
	return all, true
}

// Setting returns the value of a setting for a program, or "".
func (p *Policy) Setting(program, variable string) string {
	for _, g := range p.Programs {
		if fits(g.Name, program) {
			return g.Settings[variable]
		}
	}
	return ""
}

// Upgrades reports whether a connection of a program may use lanes. direction says whether the
// program accepted it (In) or connected it (Out). port is the server's port, and peer the address
// of the other end.
func (p *Policy) Upgrades(program, direction string, port uint16, peer netip.Addr) bool {
	for _, c := range p.Connections {
		if fits(c.Program, program) && (c.Direction == Any || c.Direction == direction) &&
			(len(c.Ports) == 0 || slices.ContainsFunc(c.Ports, func(r Ports) bool { return r.First <= port && port <= r.Last })) &&
			(len(c.Addresses) == 0 || slices.ContainsFunc(c.Addresses, func(a netip.Prefix) bool { return a.Contains(peer) })) {
			return c.Upgrade
		}
	}
	return true
}

func fits(pattern, program string) bool {
	ok, err := path.Match(pattern, program)
	return ok && err == nil
}
