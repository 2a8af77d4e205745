package policy

import (
	"net/netip"
	"reflect"
	"testing"
)

const rules = "program redis-* EXN_DS_SPIN_US=0 EXN_DS_WINDOW=65536;program * EXN_DS_SPIN_US=7;" +
	"connection redis-* in 6379-6380,7000-7000 10.0.0.0/8,fd00::/8 no;connection * any 443-443 any no;connection web out any any yes;connection web any any any no;"

func TestStringAndBack(t *testing.T) {
	p := Decode(rules)
	if got := p.String(); got != rules {
		t.Errorf("got  %s\nwant %s", got, rules)
	}
	if again := Decode(p.String()); !reflect.DeepEqual(again, p) {
		t.Errorf("%+v, then %+v", p, again)
	}
}

func TestRules(t *testing.T) {
	p := Decode(rules)
	if a, b, c := p.Setting("redis-server", "EXN_DS_SPIN_US"), p.Setting("nginx", "EXN_DS_SPIN_US"), p.Setting("nginx", "EXN_DS_WINDOW"); a != "0" || b != "7" || c != "" {
		t.Errorf("settings %q, %q, %q", a, b, c)
	}
	for _, c := range []struct {
		program, direction string
		port               uint16
		peer               string
		want               bool
	}{
		{"redis-server", In, 6379, "10.1.2.3", false},
		{"redis-server", In, 7000, "fd00::1", false},
		{"redis-server", In, 7001, "10.1.2.3", true},
		{"redis-server", In, 6379, "127.0.0.1", true},
		{"redis-server", Out, 6379, "10.1.2.3", true},
		{"other", In, 6379, "10.1.2.3", true},
		{"other", Out, 443, "::1", false},
		{"web", Out, 80, "::1", true},
		{"web", In, 80, "::1", false},
	} {
		if got := p.Upgrades(c.program, c.direction, c.port, netip.MustParseAddr(c.peer)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Whatever the environment contains, it is taken for rules or for none.
func FuzzDecode(f *testing.F) {
	f.Add(rules)
	f.Add("connection [ any 1-x any no;program;;connection * in any any")
	f.Fuzz(func(t *testing.T, text string) {
		p := Decode(text)
		p.Upgrades("web", In, 80, netip.MustParseAddr("::1"))
		p.Setting("web", "EXN_DS_SPIN_US")
		if again := Decode(p.String()); again.String() != p.String() {
			t.Errorf("%q, then %q", p, again)
		}
	})
}
