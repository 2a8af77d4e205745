package device

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// A forwarding finds out whether the kernel forwards IPv4 packets that arrive on an interface. That
// it may forward says little: with Docker it may in every namespace, because new ones copy the
// host's setting. So where it may, it counts as forwarding for a while after the namespace has
// forwarded any packet. If the last check was long ago, older packets do not count.
type forwarding struct {
	setting *os.File // the sysctl of the interface; nil: unknown, assume that it forwards
	counts  *os.File // of the namespace; nil: unknown, assume that it forwards if it may

	lasts  time.Duration // forwardingLasts, except in tests
	looked time.Time     // when counts was read
	passed uint64        // packets forwarded up to then
	until  time.Time     // counts as forwarding until this time
}

const (
	// forwardingAgain is how soon to check again while the answer matters.
	forwardingAgain = time.Second
	// forwardingLasts is how long a namespace counts as forwarding after it forwarded a packet.
	forwardingLasts = time.Minute
)

// openForwarding opens the files for the namespace of the calling thread.
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

// passesOn checks whether the kernel forwards.
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

// forwarded finds the number of forwarded packets in /proc/net/snmp: a line of names, then one of
// numbers.
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
