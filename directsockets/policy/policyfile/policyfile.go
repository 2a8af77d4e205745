// Package policyfile reads policies of direct sockets from TOML files.
//
//	p, err := policyfile.Read("/etc/exnet/policy.toml")
//
// [Example] is a file with every key. An error names the line, and says what to write.
package policyfile

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"exnet/directsockets/policy"
	"exnet/fabric/dir"
)

// Example is a commented file with every key.
//
//go:embed example.toml
var Example string

// ErrPolicy is wrapped by errors about the contents of a file.
var ErrPolicy = errors.New("policy")

// The library has room for this many of each (preload/policy.c).
const (
	mostConnections = 64
	mostPorts       = 16
	mostAddresses   = 16
)

// Read reads a file. Errors name the line.
func Read(file string) (*policy.Policy, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	p, err := parse(string(text))
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, fmt.Errorf("%w: %s:%d: %s", ErrPolicy, file, at.Position.Line, at.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPolicy, file, err)
	}
	return p, nil
}

func parse(text string) (*policy.Policy, error) {
	var tables map[string]toml.Primitive
	meta, err := toml.Decode(text, &tables)
	if err != nil {
		return nil, err
	}
	p := new(policy.Policy)
	for _, key := range meta.Keys() { // in the order of the file
		if len(key) > 1 || key[0] == "program" || key[0] == "connection" {
			continue
		}
		return nil, meta.PrimitiveDecode(tables[key[0]], refuse("unknown key %q; there are the tables [[program]] and [[connection]]", key[0]))
	}
	var programs, connections []map[string]toml.Primitive
	if t, ok := tables["program"]; ok {
		err = meta.PrimitiveDecode(t, &programs)
	}
	if t, ok := tables["connection"]; ok && err == nil {
		err = meta.PrimitiveDecode(t, &connections)
	}
	for _, t := range programs {
		if err == nil {
			err = program(p, meta, t)
		}
	}
	for i, t := range connections {
		if i == mostConnections && err == nil {
			err = fmt.Errorf("more than %d tables [[connection]]", mostConnections)
		}
		if err == nil {
			err = connection(p, meta, t)
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func program(p *policy.Policy, meta toml.MetaData, t map[string]toml.Primitive) error {
	g := policy.Program{Name: "*", Settings: map[string]string{}}
	set := func(variable string, parse func(any) (string, error)) func(any) error {
		return func(v any) (err error) {
			g.Settings[variable], err = parse(v)
			return err
		}
	}
	err := each(meta, t, map[string]func(any) error{
		"name":     pattern(&g.Name),
		"calls":    set("EXN_DS_CALLS", number(0, 1<<30, "")),
		"bytes":    set("EXN_DS_BYTES", size(0, 1<<62, false)),
		"spin":     set("EXN_DS_SPIN_US", microseconds(100*time.Millisecond)),
		"slots":    set("EXN_DS_SLOTS", powerOfTwo(16, 1024)),
		"window":   set("EXN_DS_WINDOW", size(16<<10, 16<<20, true)),
		"lanes":    set("EXN_DS_LANES", number(2, 4096, "")),
		"velo-max": set("EXN_DS_VELO_MAX", size(0, 4096, false)),
		"memory":   set("EXN_DS_MEMORY", size(1, 1<<62, false)),
		"peers":    set(dir.PeersVariable, peers),
	})
	p.Programs = append(p.Programs, g)
	return err
}

func connection(p *policy.Policy, meta toml.MetaData, t map[string]toml.Primitive) error {
	c := policy.Connection{Program: "*", Direction: policy.Any, Upgrade: true}
	err := each(meta, t, map[string]func(any) error{
		"program": pattern(&c.Program),
		"direction": func(v any) error {
			s, _ := v.(string)
			if s != policy.In && s != policy.Out && s != policy.Any {
				return fmt.Errorf("%v: write in (accepted here), out (connected here) or any", v)
			}
			c.Direction = s
			return nil
		},
		"port": func(v any) error {
			return elements(v, mostPorts, func(v any) error {
				r, err := portRange(v)
				c.Ports = append(c.Ports, r)
				return err
			})
		},
		"address": func(v any) error {
			return elements(v, mostAddresses, func(v any) error {
				a, err := subnet(v)
				c.Addresses = append(c.Addresses, a)
				return err
			})
		},
		"upgrade": func(v any) error {
			yes, ok := v.(bool)
			if !ok {
				return fmt.Errorf("%v: write true or false", v)
			}
			c.Upgrade = yes
			return nil
		},
	})
	p.Connections = append(p.Connections, c)
	return err
}

// each passes every key of a table to its reader. An error names the line of the key.
func each(meta toml.MetaData, t map[string]toml.Primitive, readers map[string]func(any) error) error {
	for _, key := range slices.Sorted(maps.Keys(t)) {
		read, ok := readers[key]
		if !ok {
			read = func(any) error {
				return fmt.Errorf("unknown key; there are %s", strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
			}
		}
		if err := meta.PrimitiveDecode(t[key], reader(func(v any) error {
			if err := read(v); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		})); err != nil {
			return err
		}
	}
	return nil
}

// A reader takes a value while the decoder still knows its line. The decoder reports the line only
// if decoding fails.
type reader func(any) error

// UnmarshalTOML implements toml.Unmarshaler.
func (r reader) UnmarshalTOML(v any) error { return r(v) }

func refuse(format string, args ...any) reader {
	return func(any) error { return fmt.Errorf(format, args...) }
}

func pattern(to *string) func(any) error {
	return func(v any) error {
		s, _ := v.(string)
		if _, err := path.Match(s, ""); err != nil || s == "" || strings.ContainsAny(s, " ;\x00") {
			return fmt.Errorf("%q: write the name of a program, that of its file, with * and ?", fmt.Sprint(v))
		}
		*to = s
		return nil
	}
}

// elements calls f for each element of an array, or for a single value.
func elements(v any, most int, f func(any) error) error {
	all, ok := v.([]any)
	if !ok {
		all = []any{v}
	}
	if len(all) == 0 || len(all) > most {
		return fmt.Errorf("%d values: write 1 to %d, or leave it out for all", len(all), most)
	}
	for _, e := range all {
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

func portRange(v any) (policy.Ports, error) {
	r, ok := policy.ParsePorts(fmt.Sprint(v))
	if !ok {
		return r, fmt.Errorf("%v: write a port, or a range like \"8000-8010\"", v)
	}
	return r, nil
}

func subnet(v any) (netip.Prefix, error) {
	s, _ := v.(string)
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%v: write an address or a subnet, like \"10.0.0.0/8\"", v)
	}
	return p.Masked(), nil
}

func number(least, most int64, unit string) func(any) (string, error) {
	return func(v any) (string, error) {
		n, ok := v.(int64)
		if !ok || n < least || n > most {
			return "", fmt.Errorf("%v: write a number from %d to %d%s", v, least, most, unit)
		}
		return strconv.FormatInt(n, 10), nil
	}
}

func powerOfTwo(least, most int64) func(any) (string, error) {
	return func(v any) (string, error) {
		s, err := number(least, most, ", a power of two")(v)
		if n, _ := v.(int64); err == nil && n&(n-1) != 0 {
			err = fmt.Errorf("%v: write a power of two", v)
		}
		return s, err
	}
}

// size parses a number of bytes: 65536 or "64KiB".
func size(least, most int64, powersOnly bool) func(any) (string, error) {
	return func(v any) (string, error) {
		if s, ok := v.(string); ok {
			for i, unit := range []string{"KiB", "MiB", "GiB"} {
				if n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(s, unit)), 10, 32); strings.HasSuffix(s, unit) && err == nil {
					v = n << (10 * (i + 1))
				}
			}
		}
		if powersOnly {
			return powerOfTwo(least, most)(v)
		}
		return number(least, most, `, or like "64KiB"`)(v)
	}
}

// peers parses whose programs meet in the fabric directory.
func peers(v any) (string, error) {
	s, _ := v.(string)
	p, err := dir.ParsePeers(s)
	if s == "" || err != nil {
		return "", fmt.Errorf("%v: write \"same-user\" or \"group\"", v)
	}
	return p.String(), nil
}

func microseconds(most time.Duration) func(any) (string, error) {
	return func(v any) (string, error) {
		s, _ := v.(string)
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 || d > most {
			return "", fmt.Errorf("%v: write a time up to %v, like \"50us\"; \"0s\" never spins", v, most)
		}
		return strconv.FormatInt(d.Microseconds(), 10), nil
	}
}
