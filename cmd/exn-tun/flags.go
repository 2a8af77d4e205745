package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"exnet/arp"
	"exnet/exn"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/napi"
)

// Values of flags that are more than a number or a word. Each reads itself, from
// the command line and from a configuration file alike.

// addressFlag is an address with the length of its subnet.
type addressFlag struct{ netip.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *addressFlag) UnmarshalText(text []byte) error {
	p, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("%q is no address with the length of its subnet, like 10.2.0.8/24 or fd00::8/64", text)
	}
	a.Prefix = p
	return device.CheckAddress(p)
}

// routeFlag is PREFIX=GATEWAY.
type routeFlag struct{ exn.Route }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *routeFlag) UnmarshalText(text []byte) error {
	destination, gateway, _ := strings.Cut(string(text), "=")
	p, err := netip.ParsePrefix(destination)
	if err == nil {
		r.Gateway, err = netip.ParseAddr(gateway)
	}
	r.Destination = p.Masked()
	if err != nil || r.Check() != nil {
		return fmt.Errorf("%q is no route; write the destination and the address of the next hop, like 10.3.0.0/24=10.2.0.1", text)
	}
	return nil
}

// itrFlag is a policy of interrupt throttling.
type itrFlag struct{ napi.ITR }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *itrFlag) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "off":
		i.ITR = napi.ITR{}
	case "dynamic":
		i.ITR = napi.ITR{Policy: napi.ITRDynamic}
	default:
		rate, err := strconv.ParseInt(s, 10, 64)
		if err != nil || rate < 1 || rate > 1e9 {
			return fmt.Errorf("%q: choose off, dynamic, or interrupts per second from 1 to 1000000000", s)
		}
		i.ITR = napi.ITR{Policy: napi.ITRStatic, Rate: napi.Rate(rate)}
	}
	return nil
}

// offloadFlag is a set of offloads.
type offloadFlag struct{ exteth.Caps }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *offloadFlag) UnmarshalText(text []byte) (err error) {
	o.Caps, err = device.ParseOffloads(string(text))
	return err
}

// macPrefixFlag is the first four octets of the fabric's MAC addresses.
type macPrefixFlag struct{ arp.Prefix }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *macPrefixFlag) UnmarshalText(text []byte) (err error) {
	p.Prefix, err = arp.ParsePrefix(string(text))
	return err
}
