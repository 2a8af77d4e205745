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

// Options say whether and where connections look for lanes. The zero value is
// what the environment says, by the names that the C library has too.
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
	fabric      string    // "": there is none
	peers       dir.Peers // whose programs are met there
	calls       uint64    // a connection is busy after so many calls,
	bytes       uint64    // or so many bytes,
	guess       bool      // unless most were short at that port, and neither is set
	spin        time.Duration
	geometry    lane.Geometry
	windowLeast uint32        // what a connection gets of a window at first
	veloMax     int           // what is left of a write goes by slots up to this size
	stuck       time.Duration // a reader that takes nothing from a full lane for so long gets the rest by TCP; 0: never
	subnets     []netip.Prefix
	memory      uint64 // that lanes may take; 0: by the limits of the process
	verbose     bool
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
	s.subnets, _ = settings.ParseSubnets(os.Getenv("EXN_DS_SUBNETS")) // what is none has been left out
	return s
}

// rules are what an administrator has decided. What the environment sets itself wins.
var rules = policy.Decode(os.Getenv(policy.Variable))

// program is this one's name in rules.
var program = filepath.Base(os.Args[0])

// text is a setting.
func text(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return rules.Setting(program, name)
}

// number is a numeric setting; what is no such number is ignored, and warned of.
func number(name string) uint64 {
	if v, ok := settings.Number(name, text(name)); ok {
		return v
	}
	return settings.GoNumber(name)
}

// isSet: a numeric setting has a value, and one that it may have.
func isSet(name string) bool {
	_, ok := settings.Number(name, text(name))
	return ok
}

// mistakes are what is wrong with the settings, for one line; empty: nothing.
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

// warn says once what is wrong with the settings: exn-tun run has not started this program,
// or it would have refused to.
func warn() {
	if mistakes == "" {
		return
	}
	warned.Do(func() { fmt.Fprintf(os.Stderr, "directsockets[%d]: %s\n", os.Getpid(), mistakes) })
}

// log says what happens to connections, if EXN_DS_VERBOSE asks for it.
func log(format string, args ...any) {
	if env.verbose {
		fmt.Fprintf(os.Stderr, "directsockets[%d]: %s\n", os.Getpid(), fmt.Sprintf(format, args...))
	}
}
