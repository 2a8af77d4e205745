package device

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// A forwarding tells whether the kernel passes IPv4 packets on that come by an interface.
// That it may says little: on a host with Docker it may in every namespace, for new ones
// begin with the host's setting. So where it may, it counts for as long as it has done so
// lately, for anybody in the namespace. Who looks seldom misses what was before the last minute.
type forwarding struct {
	setting *os.File // the sysctl of the interface; nil: not known, so it does
	counts  *os.File // of the namespace; nil: not known, so it does where it may

	lasts  time.Duration // forwardingLasts but in tests
	looked time.Time     // at counts
	passed uint64        // so many packets had been then
	until  time.Time     // it counts as passing packets on
}

const (
	// forwardingAgain is how soon to look again, for who has a use for it.
	forwardingAgain = time.Second
	// forwardingLasts is how long it counts after one was.
	forwardingLasts = time.Minute
)

// openForwarding is of the namespace of the thread that calls it.
func openForwarding(name string) (f forwarding) {
	f.lasts = forwardingLasts
	f.setting, _ = os.Open("/proc/sys/net/ipv4/conf/" + name + "/forwarding")
	f.counts, _ = os.Open("/proc/thread-self/net/snmp")
	return f
}

func (f *forwarding) close() {
	if f.setting != nil {
		f.setting.Close()
	}
	if f.counts != nil {
		f.counts.Close()
	}
}

// passesOn looks.
func (f *forwarding) passesOn(now time.Time) bool {
	text := make([]byte, 4096)
	if f.setting == nil {
		return true
	}
	n, _ := f.setting.ReadAt(text, 0)
	if bytes.Equal(bytes.TrimSpace(text[:n]), []byte("0")) {
		f.looked, f.until = time.Time{}, time.Time{}
		return false
	}
	if f.counts == nil {
		return true
	}
	n, _ = f.counts.ReadAt(text, 0)
	passed, ok := forwarded(text[:n])
	if !ok {
		return true
	}
	if passed != f.passed && now.Sub(f.looked) <= f.lasts {
		f.until = now.Add(f.lasts)
	}
	f.passed, f.looked = passed, now
	return now.Before(f.until)
}

// forwarded finds the number of packets passed on: there is a line of names, and one of numbers.
func forwarded(snmp []byte) (n uint64, ok bool) {
	lines := bytes.SplitN(snmp, []byte("\n"), 3)
	if len(lines) < 3 {
		return 0, false
	}
	names, numbers := bytes.Fields(lines[0]), bytes.Fields(lines[1])
	for k, name := range names {
		if string(name) == "ForwDatagrams" && len(numbers) == len(names) {
			n, err := strconv.ParseUint(string(numbers[k]), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
