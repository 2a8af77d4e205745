package fabric

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// ErrScheme means that a text for [Open] names no backend of this program.
var ErrScheme = errors.New("fabric: no such backend")

// A Place is the text that says which fabric a program attaches to, taken apart:
//
//	shm:/run/exn                       a directory of this host
//	/run/exn                           the same
//	ofi:tcp?nodes=/etc/exnet/nodes.toml  libfabric, its provider, and options
type Place struct {
	Scheme  string     // the backend
	Name    string     // what the backend attaches to: a directory, a provider
	Options url.Values // each at most once
}

// ParsePlace reads the text. What has no scheme is a directory of shm, also the
// empty text, which means the backend's default. A directory whose name has a
// colon before its first slash is written as ./name.
func ParsePlace(text string) (Place, error) {
	scheme, rest, found := strings.Cut(text, ":")
	if !found || strings.ContainsAny(scheme, "/.") {
		return Place{Scheme: "shm", Name: text}, nil
	}
	p := Place{Scheme: scheme, Name: rest}
	if scheme == "shm" { // a path may have any character
		return p, nil
	}
	name, query, found := strings.Cut(rest, "?")
	if !found {
		return p, nil
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return Place{}, fmt.Errorf("fabric %q: the options after ? are key=value with & between them: %w", text, err)
	}
	for key, values := range options {
		if len(values) != 1 {
			return Place{}, fmt.Errorf("fabric %q: %s is there %d times: %w", text, key, len(values), ErrRange)
		}
	}
	p.Name, p.Options = name, options
	return p, nil
}

func (p Place) String() string {
	if p.Scheme == "shm" {
		return "shm:" + p.Name
	}
	if len(p.Options) == 0 {
		return p.Scheme + ":" + p.Name
	}
	return p.Scheme + ":" + p.Name + "?" + p.Options.Encode()
}

// backends are those that this program has, by their schemes.
var backends = struct {
	sync.Mutex
	open map[string]func(Place, NodeID) (Node, error)
}{open: make(map[string]func(Place, NodeID) (Node, error))}

// AddBackend makes a backend known to [Open]. The package exnet/fabric/backends
// does it for all there are.
func AddBackend(scheme string, open func(Place, NodeID) (Node, error)) {
	backends.Lock()
	defer backends.Unlock()
	backends.open[scheme] = open
}

// Open attaches a node to the fabric that a text names, under an ID or the
// lowest free one (NodeAny).
func Open(text string, id NodeID) (Node, error) {
	p, err := ParsePlace(text)
	if err != nil {
		return nil, err
	}
	backends.Lock()
	open := backends.open[p.Scheme]
	var known []string
	for scheme := range backends.open {
		known = append(known, scheme)
	}
	backends.Unlock()
	if open == nil {
		slices.Sort(known)
		return nil, fmt.Errorf("fabric %q: %w: %q; there are %s (a directory with a colon in its name is ./name)",
			text, ErrScheme, p.Scheme, strings.Join(known, ", "))
	}
	return open(p, id)
}
