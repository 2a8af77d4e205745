package device

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A namespace counts as forwarding for a minute after it forwarded, as long as it may forward.
func TestForwarding(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f := forwarding{lasts: forwardingLasts, setting: file("setting"), counts: file("counts")}
	now := time.Now()
	for k, c := range []struct {
		setting, counts string
		after           time.Duration
		want            bool
	}{
		{"0\n", snmp("7"), 0, false},
		{"1\n", snmp("7"), 0, false}, // packets before the first look do not count
		{"1\n", snmp("8"), time.Second, true},
		{"1\n", snmp("8"), time.Minute - 1, true},
		{"1\n", snmp("8"), 1, false},
		{"1\n", snmp("9"), time.Minute, true},
		{"1\n", snmp("10"), time.Minute + 1, false}, // when they were forwarded is unknown
		{"1\n", snmp("11"), 0, true},
		{"0\n", snmp("11"), 0, false},
		{"1\n", snmp("12"), 0, false},
		{"1\n", "Ip: Forwarding DefaultTTL\nIp: 1 64\n", 0, true},
		{"1\n", "Ip: DefaultTTL ForwDatagrams\nIp: 1\n", 0, true},
		{"1\n", "Ip: ForwDatagrams\nIp: many\n", 0, true},
		{"1\n", "", 0, true},
		{"0\n", "", 0, false},
		{"", "", 0, true},
	} {
		now = now.Add(c.after)
		for file, text := range map[*os.File]string{f.setting: c.setting, f.counts: c.counts} {
			if err := os.WriteFile(file.Name(), []byte(text), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.passesOn(now); got != c.want {
			t.Errorf("look %d: %v, want %v", k, got, c.want)
		}
	}
	if f := (forwarding{}); !f.passesOn(now) {
		t.Error("without the setting it does not")
	}
	if err := os.WriteFile(f.setting.Name(), []byte("1\n"), 0); err != nil {
		t.Fatal(err)
	}
	if f := (forwarding{setting: f.setting}); !f.passesOn(now) {
		t.Error("without the counts it does not")
	}
}

func snmp(passed string) string {
	return "Ip: Forwarding DefaultTTL InReceives ForwDatagrams OutRequests\nIp: 1 64 5 " + passed + " 6\nIcmp: InMsgs\nIcmp: 0\n"
}
