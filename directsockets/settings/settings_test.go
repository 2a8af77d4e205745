package settings

import (
	"strings"
	"testing"
)

// Each default is a legal value, and what is beyond the range of a number is none.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All {
		if seen[s.Name] || s.Meaning == "" || s.Readers == 0 {
			t.Errorf("%s is twice in the table, or not said to mean or to be read", s.Name)
		}
		seen[s.Name] = true
		for _, value := range []string{s.Default, s.GoDefault} {
			if err := s.Check(value); err != nil {
				t.Errorf("a default: %v", err)
			}
		}
		if s.Kind != Text && s.Check("foo") == nil {
			t.Errorf("%s may be foo", s.Name)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct{ entry, want string }{
		{"EXN_DS_SPIN_US=0", ""},
		{"EXN_DS_SPIN_US=", ""},
		{"EXN_DS_SPIN_US=foo", "EXN_DS_SPIN_US=foo: write a number from 0 to 100000"},
		{"EXN_DS_SPIN_US=-1", "EXN_DS_SPIN_US=-1: write a number from 0 to 100000"},
		{"EXN_DS_SPIN_US=100001", "EXN_DS_SPIN_US=100001: write a number from 0 to 100000"},
		{"EXN_DS_SPINUS=7", "EXN_DS_SPINUS=7: there is no such setting, did you mean EXN_DS_SPIN_US?; exn-tun help settings lists them"},
		{"EXN_DS_COLOUR=red", "EXN_DS_COLOUR=red: there is no such setting; exn-tun help settings lists them"},
		{"EXN_DS_SLOTS=48", "EXN_DS_SLOTS=48: write a power of two from 16 to 1024"},
		{"EXN_DS_ZCOPY=off", ""},
		{"EXN_DS_ZCOPY=65536", ""},
		{"EXN_DS_ZCOPY=on", "EXN_DS_ZCOPY=on: write off, or a number from 1 to 1099511627776"},
		{"EXN_DS=off", ""},
		{"EXN_DS=no", "EXN_DS=no: write on or off"},
		{"EXN_DS_SUBNETS=10.0.0.0/8, fd00::/8", ""},
		{"EXN_DS_SUBNETS=10.0.0.0/8,here", "EXN_DS_SUBNETS=10.0.0.0/8,here: write up to 16 subnets, such as 10.0.0.0/8,fd00::/8"},
		{"EXN_DS_SUBNETS=" + strings.Repeat("10.0.0.1 ", 17), "EXN_DS_SUBNETS=" + strings.Repeat("10.0.0.1 ", 17) + ": write up to 16 subnets, such as 10.0.0.0/8,fd00::/8"},
		{"EXN_LONG=1", ""},
		{"PATH=/bin", ""},
	} {
		got := ""
		for _, err := range Check([]string{test.entry}) {
			got += err.Error()
		}
		if got != test.want {
			t.Errorf("%s\ngot  %q\nwant %q", test.entry, got, test.want)
		}
	}
}

func TestReadersHaveNames(t *testing.T) {
	if got := (C | Launcher).String(); got != "C, exn-tun" {
		t.Errorf("got %q", got)
	}
}
