package directsockets

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/policy"
)

// Options say whether and where connections look for lanes. The zero value is
// what the environment says, by the names that the C library has too.
type Options struct {
	// Fabric is the fabric directory: EXN_FABRIC, else /run/exn for root,
	// else exn in XDG_RUNTIME_DIR, else exn-UID in the temporary directory.
	Fabric string
	// Off keeps connections on TCP, as EXN_DS=off does.
	Off bool
}

// settings are those of the process, from the environment.
type settings struct {
	off         bool
	fabric      string
	calls       uint64 // a connection is busy after so many calls,
	bytes       uint64 // or so many bytes,
	guess       bool   // unless most were short at that port, and neither is set
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

func environment() settings {
	s := settings{
		fabric: fabricDirectory(),
		calls:  number("EXN_DS_CALLS", 8, 0, 1<<30),
		bytes:  number("EXN_DS_BYTES", 16<<10, 0, 1<<62),
		// It must exceed the time that waking takes, some 20 µs.
		spin: time.Duration(number("EXN_DS_SPIN_US", 50, 0, 100_000)) * time.Microsecond,
		geometry: lane.Geometry{
			Lanes:   uint32(number("EXN_DS_LANES", 4096, 2, 4096)) &^ 1,
			Slots:   powerOfTwo("EXN_DS_SLOTS", 64, 16, 1024),
			Windows: uint32(number("EXN_DS_WINDOWS", 1024, 1, 4096)),
			Window:  powerOfTwo("EXN_DS_WINDOW", 256<<10, 16<<10, 16<<20),
		},
		windowLeast: powerOfTwo("EXN_DS_WINDOW_LEAST", 64<<10, 16<<10, 16<<20),
		veloMax:     int(number("EXN_DS_VELO_MAX", 480, 0, 4096)),
		stuck:       time.Duration(number("EXN_DS_STUCK_MS", 100, 0, 1<<30)) * time.Millisecond,
		memory:      number("EXN_DS_MEMORY", 0, 1, 1<<62),
		verbose:     number("EXN_DS_VERBOSE", 0, 0, 9) > 0,
	}
	s.guess = text("EXN_DS_CALLS") == "" && text("EXN_DS_BYTES") == ""
	zcopyFrom.Store(int64(number("EXN_DS_ZCOPY", math.MaxInt64, 1, 1<<40)))
	bufferFrom.Store(int64(number("EXN_DS_BUFFER", 1<<20, 1, 1<<40)))
	testSwitch.Store(uint32(number("EXN_DS_TEST_SWITCH", 0, 0, 1<<30))) // for tests only
	v := os.Getenv("EXN_DS")
	s.off = v == "off" || v == "0"
	for _, net := range strings.FieldsFunc(os.Getenv("EXN_DS_SUBNETS"), func(r rune) bool { return r == ',' || r == ' ' }) {
		if p, err := netip.ParsePrefix(net); err == nil {
			s.subnets = append(s.subnets, p.Masked())
		} else if a, err := netip.ParseAddr(net); err == nil {
			s.subnets = append(s.subnets, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return s
}

func fabricDirectory() string {
	if dir := os.Getenv("EXN_FABRIC"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/run/exn"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "exn")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("exn-%d", os.Geteuid()))
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

// number is a setting; what is no number or out of range is ignored.
func number(name string, preset, least, most uint64) uint64 {
	if v, err := strconv.ParseUint(text(name), 10, 64); err == nil && least <= v && v <= most {
		return v
	}
	return preset
}

func powerOfTwo(name string, preset, least, most uint32) uint32 {
	if v := uint32(number(name, uint64(preset), uint64(least), uint64(most))); v&(v-1) == 0 {
		return v
	}
	return preset
}

// log says what happens to connections, if EXN_DS_VERBOSE asks for it.
func log(format string, args ...any) {
	if env.verbose {
		fmt.Fprintf(os.Stderr, "directsockets[%d]: %s\n", os.Getpid(), fmt.Sprintf(format, args...))
	}
}
