package emu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"exnet/fabric"
)

// A Scenario says what happens to a network, and when.
type Scenario struct {
	steps []step
}

type step struct {
	at time.Duration
	do func(*Network)
}

// Play makes a scenario happen, counted from now. Lines without a time take effect before Play
// returns.
func (n *Network) Play(s Scenario) {
	for _, s := range s.steps {
		if s.at == 0 {
			s.do(n)
		} else {
			n.At(s.at, func() { s.do(n) })
		}
	}
}

// ParseScenario parses a scenario, one statement per line:
//
//	# every link, except a node's link to itself
//	link * -> *    latency 2us jitter 500ns bandwidth 100G
//	link 1 -> 2    errors 1e-7 retries 16 1us credit-delay 10us
//	at 10ms        link 1 <-> 2 down
//	at 12ms        link 1 <-> 2 up
//	at 15ms        link * -> 3 stall 5ms
//	at 20ms        crash 3
//
// Settings are those of the Go API: latency, jitter, bandwidth (bits per second, with k, M, G or
// T), errors (probability per bit, from 0 to 1), retries (number and wait), credit-delay, stall,
// down, up, dead. -> means one direction, <-> both, and * every node. Errors name the line.
func ParseScenario(r io.Reader) (Scenario, error) {
	var s Scenario
	lines := bufio.NewScanner(r)
	for no := 1; lines.Scan(); no++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		w := words(strings.Fields(text))
		if len(w) == 0 {
			continue
		}
		st, err := w.statement()
		if err == nil && len(w) > 0 {
			err = fmt.Errorf("%q is left over", strings.Join(w, " "))
		}
		if err != nil {
			return Scenario{}, fmt.Errorf("scenario line %d: %w", no, err)
		}
		s.steps = append(s.steps, st)
	}
	if err := lines.Err(); err != nil {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	return s, nil
}

// words are the remaining words of a line.
type words []string

// next takes the next word. what names the expected word, for the error.
func (w *words) next(what string) (string, error) {
	if len(*w) == 0 {
		return "", fmt.Errorf("the line ends where %s should be", what)
	}
	word := (*w)[0]
	*w = (*w)[1:]
	return word, nil
}

func (w *words) statement() (step, error) {
	var s step
	word, err := w.next("a statement")
	if err != nil {
		return s, err
	}
	if word == "at" {
		if s.at, err = w.duration(); err != nil {
			return s, err
		}
		if word, err = w.next("a statement"); err != nil {
			return s, err
		}
	}
	switch word {
	case "crash":
		id, err := w.node()
		if err == nil && id == fabric.NodeAny {
			err = errors.New("crash one node at a time")
		}
		s.do = func(n *Network) { n.Crash(id) }
		return s, err
	case "link":
		s.do, err = w.link()
		return s, err
	}
	return s, fmt.Errorf("%q is not a statement, want at, link or crash", word)
}

func (w *words) link() (func(*Network), error) {
	from, err := w.node()
	if err != nil {
		return nil, err
	}
	arrow, err := w.next("-> or <->")
	if err != nil {
		return nil, err
	}
	if arrow != "->" && arrow != "<->" {
		return nil, fmt.Errorf("%q is not a direction, want -> or <->", arrow)
	}
	to, err := w.node()
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for len(*w) > 0 || settings == nil {
		s, err := w.setting()
		if err != nil {
			return nil, err
		}
		settings = append(settings, s)
	}
	return func(n *Network) {
		n.Link(from, to).Set(settings...)
		if arrow == "<->" {
			n.Link(to, from).Set(settings...)
		}
	}, nil
}

func (w *words) setting() (Setting, error) {
	name, err := w.next("a setting")
	if err != nil {
		return Setting{}, err
	}
	timed := func(make func(time.Duration) Setting) (Setting, error) {
		d, err := w.duration()
		return make(d), err
	}
	switch name {
	case "latency":
		return timed(Latency)
	case "jitter":
		return timed(Jitter)
	case "credit-delay":
		return timed(CreditDelay)
	case "stall":
		return timed(Stall)
	case "bandwidth":
		v, err := w.bandwidth()
		return Bandwidth(v), err
	case "errors":
		v, err := w.number("an error rate", 1)
		return BitErrors(v), err
	case "retries":
		v, err := w.number("a number of retries", 1<<20)
		if err == nil && v != math.Trunc(v) {
			err = fmt.Errorf("%v retries: want a whole number", v)
		}
		if err != nil {
			return Setting{}, err
		}
		return timed(func(d time.Duration) Setting { return Retries(int(v), d) })
	case "down":
		return Down, nil
	case "up":
		return Up, nil
	case "dead":
		return Dead, nil
	}
	return Setting{}, fmt.Errorf("%q is not a setting", name)
}

func (w *words) node() (fabric.NodeID, error) {
	word, err := w.next("a node")
	if err != nil || word == "*" {
		return fabric.NodeAny, err
	}
	id, err := strconv.ParseUint(word, 10, 16)
	if err != nil || fabric.NodeID(id) > fabric.MaxNodeID {
		return 0, fmt.Errorf("%q is not a node, want 0 to %d or *", word, fabric.MaxNodeID)
	}
	return fabric.NodeID(id), nil
}

func (w *words) duration() (time.Duration, error) {
	word, err := w.next("a duration")
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(word)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration, want one such as 10us", word)
	}
	return d, nil
}

func (w *words) bandwidth() (float64, error) {
	factor := 1.0
	if len(*w) > 0 {
		for i, unit := range []string{"k", "M", "G", "T"} {
			if s, ok := strings.CutSuffix((*w)[0], unit); ok {
				factor, (*w)[0] = math.Pow(1000, float64(i+1)), s
			}
		}
	}
	v, err := w.number("a bandwidth in bits per second", 1e18)
	return v * factor, err
}

func (w *words) number(what string, most float64) (float64, error) {
	word, err := w.next(what)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || !(v >= 0 && v <= most) {
		return 0, fmt.Errorf("%q is not %s, want a number from 0 to %v", word, what, most)
	}
	return v, nil
}
