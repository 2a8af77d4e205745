package fabric

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// ErrScheme means that the text for [Open] does not name a backend of this program.
var ErrScheme = errors.New("fabric: no such backend")

// A Place is the parsed form of the text that names the fabric to attach to:
//
//	shm:/run/exn                       a directory of this host
//	/run/exn                           the same
//	ofi:tcp?nodes=/etc/exnet/nodes.toml  libfabric, its provider, and options
type Place struct {
	Scheme  string     // of the backend
	Name    string     // of what the backend attaches to: a directory, a provider
	Options url.Values // each at most once
}

// ParsePlace parses the text. A text without a scheme is a directory for shm; the empty text means
// the backend's default. A directory with a colon in its name before the first slash must be
// written as ./name.
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

// backends are the backends of this program, by scheme.
var backends = struct {
	sync.Mutex
	open map[string]func(Place, NodeID) (Node, error)
}{open: make(map[string]func(Place, NodeID) (Node, error))}

// AddBackend makes a backend known to [Open]. Importing exnet/fabric/backends does so for all
// backends.
func AddBackend(scheme string, open func(Place, NodeID) (Node, error)) {
	backends.Lock()
	defer backends.Unlock()
	backends.open[scheme] = open
}

// Open attaches a node to the fabric that a text names, with an ID, or with the lowest free one
// (NodeAny).
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
