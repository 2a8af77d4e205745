package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"exnet/exteth"
	"exnet/napi"
)

// parseUp parses a command line of up, whose configuration file has the text.
func parseUp(t *testing.T, text string, args ...string) (*upCommand, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exn.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var all commands
	parser, err := kong.New(&all, defaults, kong.Exit(func(int) { t.Error("ended") }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(append([]string{"up", "--config", path}, args...))
	return &all.Up, path, err
}

func TestConfigFile(t *testing.T) {
	c, _, err := parseUp(t, `
# a node
node = 8
addr = ["10.2.0.8/24", "fd00::8/64"]
via  = ["10.3.0.0/16=10.2.0.1"]
netns = 'blue'
name = "exn8"
mtu = 9000
offload = "csum,tso4"
mode = "irq"
busy-poll = "20us"
velo-budget = 16
itr = "dynamic"
copy = true
mac-prefix = "02:00:00:01"
`, "--mtu", "1500", "--addr", "10.9.0.8/24")
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case *c.Node != 8, c.Netns != "blue", c.Name != "exn8", c.Mode != "irq", c.BusyPoll != 20*time.Microsecond, c.VELOBudget != 16, !c.Copy,
		c.Offload.Caps != exteth.CapChecksum|exteth.CapTSO4, c.ITR.Policy != napi.ITRDynamic, c.MACPrefix.String() != "02:00:00:01",
		len(c.Via) != 1 || c.Via[0].Gateway != netip.MustParseAddr("10.2.0.1"),
		c.RMABudget != napi.DefaultBudget, c.TAP:
		t.Errorf("got %+v", c)
	}
	if c.mtu() != 1500 || len(c.Addr) != 1 || c.Addr[0].String() != "10.9.0.8/24" {
		t.Errorf("the command line does not win: %+v", c)
	}
	c, _, err = parseUp(t, "addr = ['10.2.0.8/24', 'fd00::8/64']\nvia = []\ncopy = false")
	if err != nil || len(c.Addr) != 2 || c.Addr[1].String() != "fd00::8/64" || c.Via != nil || c.Copy {
		t.Errorf("got %+v, %v", c, err)
	}
}

// Whatever is wrong in a configuration file is named with its line.
func TestBadConfigFile(t *testing.T) {
	for _, c := range []struct {
		text string
		line string
		says string
	}{
		{"node = 8\nnods = 9", ":2: ", `unknown key "nods"; there are`},
		{"node = 8\n\n[node2]\nname = 'x'", ":3: ", `unknown key "node2"`},
		{"a.b = 1", ":1: ", `unknown key "a"`},
		{"help = true", ":1: ", `unknown key "help"`},
		{"config = 'x.toml'", ":1: ", `unknown key "config"`},
		{"node = 8\nnode = 9", ":2: ", "node"},
		{"node = 8\nname = ", ":2: ", "value"},
		{"node = 'eight'", ":1: ", "node"},
		{"node = 70000", ":1: ", "node"},
		{"node = [8]", ":1: ", "node: takes one value"},
		{"node = 8.5", ":1: ", "node: cannot be a float64"},
		{"\nmtu = 'large'", ":2: ", "mtu"},
		{"\naddr = ['10.2.0.8/24', '10.2.0.9']", ":2: ", "like 10.2.0.8/24"},
		{"addr = [['10.2.0.8/24']]", ":1: ", "addr: takes one value"},
		{"copy = 'perhaps'", ":1: ", "copy"},
		{"busy-poll = 20", ":1: ", "busy-poll"},
		{"[addr]\nfirst = 1", ":1: ", "addr: cannot be"},
		{"mode = 'poll'", "", `"napi","irq"`},
		{"\xff", ":1: ", "UTF-8"},
	} {
		_, path, err := parseUp(t, c.text)
		switch {
		case err == nil:
			t.Errorf("%q: accepted", c.text)
		case c.line != "" && !strings.Contains(err.Error(), path+c.line), !strings.Contains(err.Error(), c.says):
			t.Errorf("%q: error %v does not say %q at %q", c.text, err, c.says, c.line)
		}
	}
}
