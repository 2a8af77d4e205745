package ofi

import (
	"fmt"
	"slices"
	"strings"
)

// A provider is what users call one of libfabric's, and what is known of it.
type provider struct {
	name string
	// engine is libfabric's name, before and from version 2.0 on.
	before2, from2 string
	dials          bool   // it listens at a TCP port
	tested         string // how much it was tried
}

// providers are data: what else they want (memory modes, wait object, inject
// size) they say themselves when they are opened. 1.17's "net" is missing on
// purpose: its wait descriptor spins.
var providers = []provider{
	{"tcp", "tcp;ofi_rxm", "tcp", true, "with 1.17 and 2.1"},
	{"verbs", "verbs;ofi_rxm", "verbs;ofi_rxm", false, "untested"},
	{"efa", "efa", "efa", false, "untested"},
	{"cxi", "cxi", "cxi", false, "untested"},
}

// find looks a provider up.
func findProvider(name string) (provider, error) {
	if i := slices.IndexFunc(providers, func(p provider) bool { return p.name == name }); i >= 0 {
		return providers[i], nil
	}
	var known []string
	for _, p := range providers {
		known = append(known, p.name)
	}
	return provider{}, fmt.Errorf("ofi: no provider is called %q; there are %s", name, strings.Join(known, ", "))
}

func (p provider) engine(major int) string {
	if major >= 2 {
		return p.from2
	}
	return p.before2
}
