package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"exnet/exn"
	"exnet/fabric"
)

// ErrFilter is wrapped by every error about a filter.
var ErrFilter = errors.New("capture: bad filter")

// A Filter selects frames; see the package comment for its language. The zero value selects all.
// One goroutine at a time may use it.
type Filter struct {
	root test
	head headers
}

// A test looks at one frame.
type test func(c *exn.CaptureFrame, h *headers) bool

// ParseFilter parses a filter.
func ParseFilter(text string) (*Filter, error) {
	p := parser{words: strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text))}
	if len(p.words) == 0 {
		return new(Filter), nil
	}
	root, err := p.or(0)
	if err == nil && p.at < len(p.words) {
		err = fmt.Errorf("unexpected %q", p.words[p.at])
	}
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w; exn-tun help capture describes filters", ErrFilter, text, err)
	}
	return &Filter{root: root}, nil
}

// Match reports whether the filter selects a frame.
func (f *Filter) Match(c *exn.CaptureFrame) bool {
	if f.root == nil {
		return true
	}
	f.head.parse(c.Frame)
	return f.root(c, &f.head)
}

// deepest bounds the nesting of parentheses and nots in a filter, which comes from other processes.
const deepest = 100

type parser struct {
	words []string
	at    int
}

func (p *parser) take(word string) bool {
	if p.at < len(p.words) && p.words[p.at] == word {
		p.at++
		return true
	}
	return false
}

// next returns the next word, or "" at the end.
func (p *parser) next() string {
	if p.at == len(p.words) {
		return ""
	}
	p.at++
	return p.words[p.at-1]
}

func (p *parser) or(depth int) (test, error) {
	left, err := p.and(depth)
	for err == nil && p.take("or") {
		a := left
		var b test
		b, err = p.and(depth)
		left = func(c *exn.CaptureFrame, h *headers) bool { return a(c, h) || b(c, h) }
	}
	return left, err
}

func (p *parser) and(depth int) (test, error) {
	left, err := p.not(depth)
	for err == nil && p.take("and") {
		a := left
		var b test
		b, err = p.not(depth)
		left = func(c *exn.CaptureFrame, h *headers) bool { return a(c, h) && b(c, h) }
	}
	return left, err
}

func (p *parser) not(depth int) (test, error) {
	switch {
	case depth > deepest:
		return nil, errors.New("too deep")
	case p.take("not"):
		t, err := p.not(depth + 1)
		return func(c *exn.CaptureFrame, h *headers) bool { return !t(c, h) }, err
	case p.take("("):
		t, err := p.or(depth + 1)
		if err == nil && !p.take(")") {
			err = errors.New("a closing parenthesis is missing")
		}
		return t, err
	}
	return p.primitive()
}

// words are the tests without an argument.
var words = map[string]test{
	"arp":        func(_ *exn.CaptureFrame, h *headers) bool { return h.etherType == etherTypeARP },
	"ip":         func(_ *exn.CaptureFrame, h *headers) bool { return h.etherType == etherTypeIPv4 },
	"ip6":        func(_ *exn.CaptureFrame, h *headers) bool { return h.etherType == etherTypeIPv6 },
	"tcp":        func(_ *exn.CaptureFrame, h *headers) bool { return h.protocol == protoTCP },
	"udp":        func(_ *exn.CaptureFrame, h *headers) bool { return h.protocol == protoUDP },
	"icmp":       func(_ *exn.CaptureFrame, h *headers) bool { return h.protocol == protoICMP },
	"icmp6":      func(_ *exn.CaptureFrame, h *headers) bool { return h.protocol == protoICMPv6 },
	"in":         func(c *exn.CaptureFrame, _ *headers) bool { return !c.Sent },
	"out":        func(c *exn.CaptureFrame, _ *headers) bool { return c.Sent },
	"eager":      func(c *exn.CaptureFrame, _ *headers) bool { return !c.Rendezvous },
	"rendezvous": func(c *exn.CaptureFrame, _ *headers) bool { return c.Rendezvous },
	"multicast":  func(c *exn.CaptureFrame, _ *headers) bool { return c.Multicast },
}

func (p *parser) primitive() (test, error) {
	word := p.next()
	if t := words[word]; t != nil {
		return t, nil
	}
	switch word {
	case "":
		return nil, errors.New("it ends too early")
	case "host", "net", "port", "node":
	default:
		return nil, fmt.Errorf("unknown word %q", word)
	}
	value := p.next()
	if value == "" {
		return nil, fmt.Errorf("%s needs an argument", word)
	}
	switch word {
	case "host":
		a, err := netip.ParseAddr(value)
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address", value)
		}
		return func(_ *exn.CaptureFrame, h *headers) bool { return h.source == a || h.destination == a }, nil
	case "net":
		n, err := netip.ParsePrefix(value)
		if err != nil {
			return nil, fmt.Errorf("%q is not a subnet like 10.2.0.0/24", value)
		}
		return func(_ *exn.CaptureFrame, h *headers) bool { return n.Contains(h.source) || n.Contains(h.destination) }, nil
	case "port":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not a port", value)
		}
		port := uint16(n)
		return func(_ *exn.CaptureFrame, h *headers) bool {
			return h.ports && (h.sourcePort == port || h.destinationPort == port)
		}, nil
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || fabric.NodeID(n) > fabric.MaxNodeID {
		return nil, fmt.Errorf("%q is not a node ID", value)
	}
	return func(c *exn.CaptureFrame, _ *headers) bool {
		return c.Peer == fabric.NodeID(n) && !(c.Sent && c.Multicast)
	}, nil
}
