package device

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"exnet/arp"
	"exnet/exteth"
)

func TestBadConfig(t *testing.T) {
	addresses := func(list ...string) (all []netip.Prefix) {
		for _, s := range list {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	for _, c := range []struct {
		config Config
		says   string // "" for none
	}{
		{Config{}, ""},
		{Config{Name: "abcdefghijklmno"}, ""},
		{Config{Name: "abcdefghijklmnop"}, "16 bytes long; the kernel takes 15"},
		{Config{Name: "exn%d"}, "printable"},
		{Config{Name: "a/b"}, "printable"},
		{Config{Name: "exn\n"}, "printable"},
		{Config{Name: "all"}, "another meaning"},
		{Config{MTU: 65536}, "68 to 65535"},
		{Config{MTU: 67}, "68 to 65535"},
		{Config{MTU: -1}, "68 to 65535"},
		{Config{Kind: TAP, MTU: 65522}, "68 to 65521"},
		{Config{Kind: TAP, MTU: 65521}, ""},
		{Config{MAC: arp.Broadcast}, "of a group"},
		{Config{Offloads: exteth.CapAll}, ""},
		{Config{Offloads: exteth.CapUSO}, "add csum"},
		{Config{Offloads: exteth.CapChecksum | exteth.CapECN}, "add tso4"},
		{Config{Addresses: addresses("10.2.0.8/24", "10.3.0.8/31", "10.4.0.8/32", "fd00::8/64", "fe80::8/64")}, ""},
		{Config{Addresses: addresses("10.2.0.0/24")}, "like 10.2.0.1"},
		{Config{Addresses: addresses("10.2.0.255/24")}, "like 10.2.0.254"},
		{Config{Addresses: addresses("10.2.3.255/22")}, "broadcast"},
		{Config{Addresses: addresses("10.2.0.8/24", "10.2.0.8/16")}, "twice"},
		{Config{Addresses: addresses("127.0.0.2/8")}, "loopback"},
		{Config{Addresses: addresses("224.0.0.1/24")}, "group"},
		{Config{Addresses: addresses("ff02::1/64")}, "group"},
		{Config{Addresses: addresses("0.0.0.0/8")}, "no address"},
		{Config{Addresses: addresses("10.0.0.1/0")}, "no address"},
		{Config{Addresses: addresses("::ffff:10.0.0.1/120")}, "as IPv4"},
		{Config{Addresses: []netip.Prefix{{}}}, "length of its subnet"},
		{Config{Addresses: addresses("fd00::8/64"), MTU: 1279}, "MTU of 1280"},
		{Config{Addresses: addresses("fd00::8/64"), MTU: 1280}, ""},
		{Config{Addresses: addresses("10.2.0.8/24"), MTU: 68}, ""},
	} {
		err := c.config.Check()
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%+v: %v", c.config, err)
		case c.says != "" && (err == nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: error %v does not say %q", c.config, err, c.says)
		}
	}
}

func TestParseOffloads(t *testing.T) {
	for s, want := range map[string]exteth.Caps{
		"all": exteth.CapAll, "none": 0, "csum": exteth.CapChecksum,
		"csum,tso":         exteth.CapChecksum | exteth.CapTSO4 | exteth.CapTSO6 | exteth.CapECN,
		"csum,tso4,big":    exteth.CapChecksum | exteth.CapTSO4 | exteth.CapBig,
		"csum, tso6, uso":  exteth.CapChecksum | exteth.CapTSO6 | exteth.CapUSO,
		"csum,tso4,ecn":    exteth.CapChecksum | exteth.CapTSO4 | exteth.CapECN,
		"all,csum,tso,uso": exteth.CapAll,
		"csum,tso,uso,big": exteth.CapAll,
	} {
		if got, err := ParseOffloads(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "tso", "csum,ecn", "gso", "csum;tso", "all,lro", "csum,big", "csum,tso6,big"} {
		if got, err := ParseOffloads(s); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: got %v, %v", s, got, err)
		}
	}
}
