// Package settings is the table of the environment variables that configure direct sockets.
//
//	for _, err := range settings.Check(os.Environ()) { … }    // what is wrong, a line each
//	for _, s := range settings.All { … }                      // for a help page
//	spin, _ := settings.Number("EXN_DS_SPIN_US", os.Getenv("EXN_DS_SPIN_US"))
//
// The Go package directsockets takes its defaults and ranges from here. The C library
// (preload/config.c) has its own copy. A test compares the values that it refuses, and its
// defaults, with this table.
//
// # What it is not
//
// It reads no environment itself and keeps no values.
package settings

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Reader is a part of exnet that reads a setting; several are or-ed.
type Reader uint8

// The readers.
const (
	C        Reader = 1 << iota // libextds.so, preloaded or linked
	Go                          // package directsockets
	Launcher                    // exn-tun
)

// String names the readers.
func (r Reader) String() string {
	var names []string
	for i, name := range []string{"C", "Go", "exn-tun"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// A Kind is what a value looks like.
type Kind uint8

// The kinds.
const (
	Text       Kind = iota // anything, such as a path
	Count                  // a number from Least to Most
	PowerOfTwo             // the same, a power of two
	OffOrCount             // "off", or such a number
	OnOrOff                // "on" or "1", "off" or "0"
	Subnets                // a list of subnets, divided by commas or blanks
)

// A Setting is one environment variable.
type Setting struct {
	Name    string
	Meaning string // in a line
	Kind    Kind
	Least   uint64 // of a number
	Most    uint64 // likewise
	Default string // as it would be written; empty: Meaning says what holds
	// GoDefault is the default of the Go package, if it differs.
	GoDefault string
	Readers   Reader
	Test      bool // it is for tests only
}

// Prefix is the prefix of variables that must all be known: an unknown variable with this prefix is
// a mistake. EXN_ alone is not such a prefix.
const Prefix = "EXN_DS"

const both = C | Go

// mostSubnets is how many entries of EXN_DS_SUBNETS the C library has room for.
const mostSubnets = 16

// All are the settings, with the most used first.
var All = []Setting{
	{Name: "EXN_FABRIC", Readers: both | Launcher,
		Meaning: "the fabric directory, in which programs find their peers; unset: /run/exn for root, else exn in XDG_RUNTIME_DIR, else .exn in the home directory"},
	{Name: "EXN_PEERS", Default: "same-user", Readers: both | Launcher,
		Meaning: "whose programs meet in the fabric directory: same-user, or group for those of a group's directory, too"},
	{Name: "EXN_DS", Kind: OnOrOff, Default: "on", Readers: both,
		Meaning: "off keeps all connections on TCP"},
	{Name: "EXN_POLICY", Readers: Launcher,
		Meaning: "the policy file that exn-tun run uses without --policy"},
	{Name: "EXN_LIBRARY", Readers: Launcher,
		Meaning: "the library that exn-tun run preloads; unset: libextds.so beside exn-tun, or in ../lib"},
	{Name: "EXN_DS_VERBOSE", Kind: Count, Most: 9, Default: "0", Readers: both,
		Meaning: "1 says on standard error what happens to connections, as --verbose does"},
	{Name: "EXN_DS_REQUIRE", Kind: Count, Most: 1, Default: "0", Readers: C,
		Meaning: "1 resets busy connections that stay on TCP, as --require does; programs in Go ask Conn.Status instead, and decide themselves"},
	{Name: "EXN_DS_CALLS", Kind: Count, Most: 1 << 30, Default: "8", Readers: both,
		Meaning: "a connection looks for a lane after so many calls, or after EXN_DS_BYTES; with neither set later at ports whose connections are short"},
	{Name: "EXN_DS_BYTES", Kind: Count, Most: 1 << 62, Default: "16384", Readers: both,
		Meaning: "a connection looks for a lane after so many bytes, or after EXN_DS_CALLS"},
	{Name: "EXN_DS_SPIN_US", Kind: Count, Most: 100_000, Default: "50", Readers: both,
		Meaning: "microseconds for which a blocked call polls before it sleeps; 0 never polls"},
	{Name: "EXN_DS_SUBNETS", Kind: Subnets, Readers: both,
		Meaning: "subnets of this host, such as 10.0.0.0/8,fd00::/8: connections between two addresses of them take lanes as well"},
	{Name: "EXN_DS_MEMORY", Kind: Count, Least: 1, Most: 1 << 62, Readers: both,
		Meaning: "bytes that all lanes of a process may take; unset: an eighth of the machine's or the cgroup's, at most 1 GiB"},
	{Name: "EXN_DS_LANES", Kind: Count, Least: 2, Most: 4096, Default: "4096", Readers: both,
		Meaning: "connections that may take lanes, per channel of two processes"},
	{Name: "EXN_DS_SLOTS", Kind: PowerOfTwo, Least: 16, Most: 1024, Default: "64", Readers: both,
		Meaning: "small messages of a connection under way, each way"},
	{Name: "EXN_DS_WINDOW", Kind: PowerOfTwo, Least: 16 << 10, Most: 16 << 20, Default: "262144", Readers: both,
		Meaning: "bytes of a window, into which large writes go"},
	{Name: "EXN_DS_WINDOW_LEAST", Kind: PowerOfTwo, Least: 16 << 10, Most: 16 << 20, Default: "65536", Readers: both,
		Meaning: "bytes that a connection gets of a window at first"},
	{Name: "EXN_DS_WINDOWS", Kind: Count, Least: 1, Most: 4096, Default: "1024", Readers: both,
		Meaning: "windows of a channel, which its connections share"},
	{Name: "EXN_DS_VELO_MAX", Kind: Count, Most: 4096, Default: "480", Readers: both,
		Meaning: "writes of up to so many bytes go as small messages"},
	{Name: "EXN_DS_STUCK_MS", Kind: Count, Most: 1 << 30, Default: "100", Readers: both,
		Meaning: "milliseconds without a read after which bytes for a full lane go by TCP; 0: never"},
	{Name: "EXN_DS_ZCOPY", Kind: OffOrCount, Least: 1, Most: 1 << 40, Default: "off", Readers: both,
		Meaning: "blocking writes of at least so many bytes are copied once, from memory to memory"},
	{Name: "EXN_DS_BUFFER", Kind: Count, Least: 1, Most: 1 << 40, Default: "262144", GoDefault: "1048576", Readers: both,
		Meaning: "bytes of a write out of a registered buffer from which on it is copied once"},
	{Name: "EXN_DS_HOT", Kind: Count, Most: 1 << 30, Default: "128", Readers: C,
		Meaning: "an epoll set with more lanes asks its peers which of them are busy"},
	{Name: "EXN_DS_POLICY", Readers: both,
		Meaning: "the rules of a policy file; exn-tun run sets it, write --policy or EXN_POLICY instead"},
	{Name: "EXN_DS_TEST_SWITCH", Kind: Count, Most: 1 << 30, Default: "0", Readers: both, Test: true,
		Meaning: "go back to TCP at random, in one of so many writes"},
	{Name: "EXN_DS_TEST_SEED", Kind: Count, Most: 1<<64 - 1, Default: "1", Readers: C, Test: true,
		Meaning: "the seed of that"},
	{Name: "EXN_DS_TEST_NOCONSENT", Kind: Count, Most: 1, Default: "0", Readers: C, Test: true,
		Meaning: "1 never lets a peer write to a lane"},
	{Name: "EXN_DS_TEST_EAGER", Kind: Count, Most: 1, Default: "0", Readers: C, Test: true,
		Meaning: "1 rings for each read, as ends do that do not know slots_due"},
}

// Lookup finds a setting.
func Lookup(name string) (s Setting, found bool) {
	i := slices.IndexFunc(All, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return All[i], true
}

// Values describes the legal values, as in "a number from 0 to 9". It is empty for text.
func (s Setting) Values() string {
	switch s.Kind {
	case Count:
		return fmt.Sprintf("a number from %d to %d", s.Least, s.Most)
	case PowerOfTwo:
		return fmt.Sprintf("a power of two from %d to %d", s.Least, s.Most)
	case OffOrCount:
		return fmt.Sprintf("off, or a number from %d to %d", s.Least, s.Most)
	case OnOrOff:
		return "on or off"
	case Subnets:
		return fmt.Sprintf("up to %d subnets, such as 10.0.0.0/8,fd00::/8", mostSubnets)
	}
	return ""
}

// Check returns what is wrong with a value, in one line that names the setting and its legal
// values. An empty value counts as not set.
func (s Setting) Check(value string) error {
	if value == "" || s.legal(value) {
		return nil
	}
	return fmt.Errorf("%s=%s: write %s", s.Name, value, s.Values())
}

func (s Setting) legal(value string) bool {
	switch s.Kind {
	case Count, PowerOfTwo, OffOrCount:
		_, ok := s.number(value)
		return ok || s.Kind == OffOrCount && value == off
	case OnOrOff:
		return slices.Contains([]string{"on", "1", off, "0"}, value)
	case Subnets:
		all, ok := ParseSubnets(value)
		return ok && len(all) <= mostSubnets
	}
	return true
}

const off = "off"

func (s Setting) number(value string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(value, 10, 64)
	return n, err == nil && s.Least <= n && n <= s.Most && (s.Kind != PowerOfTwo || n&(n-1) == 0)
}

// Number returns the value of a numeric setting. ok is false if the text is empty, or is not a
// legal number, such as "off". It panics if there is no such setting.
func Number(name, value string) (n uint64, ok bool) {
	s, found := Lookup(name)
	if !found {
		panic("settings: no setting " + name)
	}
	return s.number(value)
}

// GoNumber returns the default of a numeric setting for the Go package, or 0 if it has none.
func GoNumber(name string) uint64 {
	s, _ := Lookup(name)
	text := s.Default
	if s.GoDefault != "" {
		text = s.GoDefault
	}
	n, _ := strconv.ParseUint(text, 10, 64) // "off" and "" are 0
	return n
}

// ParseSubnets parses a list of subnets and addresses. It leaves out invalid entries, and then ok
// is false.
func ParseSubnets(list string) (all []netip.Prefix, ok bool) {
	ok = true
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		if p, err := netip.ParsePrefix(word); err == nil {
			all = append(all, p.Masked())
		} else if a, err := netip.ParseAddr(word); err == nil && a.Zone() == "" {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		} else {
			ok = false
		}
	}
	return all, ok
}

// A Mistake is a variable that is set wrongly.
type Mistake struct {
	Setting      // if it is one
	Known   bool // else there is no such setting
	why     string
}

// Error returns one line that names the variable and its legal values.
func (m Mistake) Error() string { return m.why }

// Warning returns that line for a program that runs nevertheless, with the value that it uses.
func (m Mistake) Warning(holds string) string {
	switch {
	case !m.Known:
		return m.why
	case m.Kind == Subnets:
		holds = "the others hold"
	case holds == "":
		holds = "the default holds"
	default:
		holds += " holds"
	}
	return fmt.Sprintf("%s (%s)", m.why, holds)
}

// Check returns what is wrong with an environment, in its order: settings with an illegal value,
// and variables that begin with [Prefix] and are not settings.
func Check(env []string) (wrong []Mistake) {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		s, found := Lookup(name)
		switch {
		case found:
			if err := s.Check(value); err != nil {
				wrong = append(wrong, Mistake{s, true, err.Error()})
			}
		case strings.HasPrefix(name, Prefix) && value != "":
			why := fmt.Sprintf("%s=%s: there is no such setting%s; exn-tun help settings lists them", name, value, like(name))
			wrong = append(wrong, Mistake{why: why})
		}
	}
	return wrong
}

// like returns the setting that a wrong name resembles, if there is one: it differs only in
// underscores, or in up to two letters.
func like(name string) string {
	best, least := "", 3
	for _, s := range All {
		if d := distance(strings.ReplaceAll(name, "_", ""), strings.ReplaceAll(s.Name, "_", "")); d < least && !s.Test {
			best, least = s.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// distance returns how many letters must be inserted, removed or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = above, min(change, above+1, row[j]+1)
		}
	}
	return row[len(b)]
}
