package directsockets

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/policy"
	"exnet/directsockets/settings"
	"exnet/fabric/dir"
)

// Options set whether and where connections look for lanes. The zero value takes the settings from
// the environment, by the same names as the C library.
type Options struct {
	// Fabric is the fabric directory: EXN_FABRIC, else /run/exn for root,
	// else exn in XDG_RUNTIME_DIR, else .exn in the home directory.
	Fabric string
	// Off keeps connections on TCP, as EXN_DS=off does.
	Off bool
}

// environs are the settings of the process, from the environment.
type environs struct {
	off         bool
	fabric      string    // whose programs we may meet there
	peers       dir.Peers // whose programs are met there
	calls       uint64    // a connection is busy after this many calls,
	bytes       uint64    // or this many bytes,
	guess       bool      // unless most connections to that port were short, and neither is set
	spin        time.Duration
	geometry    lane.Geometry
	windowLeast uint32 // size of a connection's window at first
	veloMax     int    // up to this size the rest of a write goes through slots
	// if a reader takes nothing from a full lane for this long, TCP carries the rest; 0:
	// never
	stuck   time.Duration
	subnets []netip.Prefix
	memory  uint64 // limit for lanes; 0: by the limits of the process
	verbose bool
}

// env is read once, when the program starts, as in the C library.
var env = environment()

func environment() environs {
	s := environs{
		calls: number("EXN_DS_CALLS"),
		bytes: number("EXN_DS_BYTES"),
		// It must exceed the time that waking takes, some 20 µs.
		spin: time.Duration(number("EXN_DS_SPIN_US")) * time.Microsecond,
		geometry: lane.Geometry{
			Lanes:   uint32(number("EXN_DS_LANES")) &^ 1,
			Slots:   uint32(number("EXN_DS_SLOTS")),
			Windows: uint32(number("EXN_DS_WINDOWS")),
			Window:  uint32(number("EXN_DS_WINDOW")),
		},
		windowLeast: uint32(number("EXN_DS_WINDOW_LEAST")),
		veloMax:     int(number("EXN_DS_VELO_MAX")),
		stuck:       time.Duration(number("EXN_DS_STUCK_MS")) * time.Millisecond,
		memory:      number("EXN_DS_MEMORY"),
		verbose:     number("EXN_DS_VERBOSE") > 0,
		guess:       !isSet("EXN_DS_CALLS") && !isSet("EXN_DS_BYTES"),
	}
	s.fabric, _ = dir.Default()
	s.peers, _ = dir.ParsePeers(text(dir.PeersVariable))
	zcopyFrom.Store(math.MaxInt64)
	if n, ok := settings.Number("EXN_DS_ZCOPY", text("EXN_DS_ZCOPY")); ok {
		zcopyFrom.Store(int64(n))
	}
	bufferFrom.Store(int64(number("EXN_DS_BUFFER")))
	testSwitch.Store(uint32(number("EXN_DS_TEST_SWITCH"))) // for tests only
	v := os.Getenv("EXN_DS")
	s.off = v == "off" || v == "0"
	// it has left out what is not a subnet
	s.subnets, _ = settings.ParseSubnets(os.Getenv("EXN_DS_SUBNETS"))
	return s
}

// rules are the administrator's policy. Variables that the environment sets itself take precedence.
var rules = policy.Decode(os.Getenv(policy.Variable))

// program is the name of this program in the rules.
var program = filepath.Base(os.Args[0])

// text returns a setting.
func text(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return rules.Setting(program, name)
}

// number returns a numeric setting. It ignores an invalid value, of which warn warns.
func number(name string) uint64 {
	if v, ok := settings.Number(name, text(name)); ok {
		return v
	}
	return settings.GoNumber(name)
}

// isSet reports whether a numeric setting has a valid value.
func isSet(name string) bool {
	_, ok := settings.Number(name, text(name))
	return ok
}

// mistakes describes in one line what is wrong with the settings; empty if nothing.
var mistakes = mistaken(os.Environ())

func mistaken(env []string) string {
	for _, s := range settings.All {
		if v := rules.Setting(program, s.Name); v != "" && os.Getenv(s.Name) == "" {
			env = append(env, s.Name+"="+v)
		}
	}
	var all []string
	for _, m := range settings.Check(env) {
		all = append(all, m.Warning(cmp.Or(m.GoDefault, m.Default)))
	}
	return strings.Join(all, "; ")
}

var warned sync.Once

// warn reports once what is wrong with the settings. It is needed if exn-tun run did not start this
// program: exn-tun run would have refused to.
func warn() {
	if mistakes == "" {
		return
	}
	warned.Do(func() { fmt.Fprintf(os.Stderr, "directsockets[%d]: %s\n", os.Getpid(), mistakes) })
}

// log reports what happens to connections, if EXN_DS_VERBOSE asks for it.
func log(format string, args ...any) {
	if env.verbose {
		fmt.Fprintf(os.Stderr, "directsockets[%d]: %s\n", os.Getpid(), fmt.Sprintf(format, args...))
	}
}
