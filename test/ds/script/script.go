// Package script compares a program's view of EXT-DS with that of TCP.
//
// A [Script] is a sequence of socket calls on the two ends of connections. Play
// makes them, one after the other, and gives a [Log] of what each call
// returned: value, errno, bytes, readiness, signals. The same script is played
// over plain TCP and with the library; the logs must be equal. Scripts are
// written by hand (testdata) or made from a seed by [Generate]; [Shrink] makes a
// failing one small.
//
// What TCP itself leaves open must not be in a log, so a script never races:
// each step ends before the next begins, a call that blocks is known to sleep
// before the next step is taken, and how much fits into a buffer is not logged.
//
// The language, one step a line:
//
//	a connect c 4 $port      end a makes a call; see ccode/calls.h
//	b d=accept l             a call that makes a descriptor names it
//	b&1 read d 100           by a thread of its own, thread 1 of b
//	b blocked 1              wait until thread 1 of b sleeps
//	b join 1                 the outcome of thread 1
//	b signal 1 USR1          interrupt it
//	b cancel 1               pthread_cancel
//	a fork                   A is the child of a from now on, B that of b
//	a kill9, a stop, a cont  signals to the process itself
//	a poll 50 c in @50       the call must take at least 50 ms
//	open                     c at a and d at b are connected, l listens
//	warm                     ping-pong over c and d, enough for an upgrade
//
// $F is the family of the variant played, $port the port of the last listener.
package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An End is one of the two processes, or a child of it.
type End byte

// The ends: a connects, b accepts; A and B are their children.
const (
	A      End = 'a'
	B      End = 'b'
	ChildA End = 'A'
	ChildB End = 'B'
)

// A Step is one call of one end.
type Step struct {
	End     End
	Thread  int // its number when the call is made by a thread of its own, else 0
	Words   []string
	AtLeast time.Duration // the call must not return before
}

func (s Step) String() string {
	var b strings.Builder
	b.WriteByte(byte(s.End))
	if s.Thread != 0 {
		fmt.Fprintf(&b, "&%d", s.Thread)
	}
	words := s.Words
	if len(words) > 1 && makesDescriptor[words[1]] {
		words = append([]string{words[0] + "=" + words[1]}, words[2:]...)
	}
	fmt.Fprintf(&b, " %s", strings.Join(words, " "))
	if s.AtLeast > 0 {
		fmt.Fprintf(&b, " @%d", s.AtLeast.Milliseconds())
	}
	return b.String()
}

var makesDescriptor = map[string]bool{"socket": true, "listen": true, "accept": true, "dup": true, "fdup": true, "epoll": true, "pair": true, "pipe": true, "take": true}

// A Script is what is played.
type Script struct {
	Name  string
	Steps []Step
}

func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "script %s\n", s.Name)
	for _, step := range s.Steps {
		fmt.Fprintln(&b, step)
	}
	return b.String()
}

// A Variant is a way to play a script.
type Variant struct {
	Family string // 4, 6, or m for IPv4-mapped addresses
	Warm   bool   // "open" also warms
	// Switching: the library is told to take directions to TCP and back at random.
	Switching bool
}

func (v Variant) String() string {
	return v.Family + map[bool]string{false: "-cold", true: "-warm"}[v.Warm]
}

// The steps that "open" and "warm" stand for. Nagle is off: with it, when a
// small write arrives depends on when its predecessor is acknowledged.
var macros = map[string][]string{
	"open": {
		"b l=listen $F", "a c=socket $F", "a connect c $F $port", "b d=accept l",
		"a set c nodelay 1", "b set d nodelay 1",
	},
	// Rounds and bytes above every threshold of the library's defaults (8 calls, 16 KiB).
	"warm": {"b&7 pong d 40 600", "a ping c 40 600", "b join 7"},
}

var lineForm = regexp.MustCompile(`^([abAB])(?:&([1-7]))? (\S.*)$`)

// Parse reads the scripts of a file, unfolding macros for one variant. A script
// begins with "script NAME"; # begins a comment.
func Parse(text string, v Variant) ([]Script, error) {
	var scripts []Script
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			continue
		}
		if name, ok := strings.CutPrefix(line, "script "); ok {
			scripts = append(scripts, Script{Name: name})
			continue
		}
		if len(scripts) == 0 {
			return nil, fmt.Errorf("line %d: a step before the first script", n+1)
		}
		lines := []string{line}
		if steps, ok := macros[line]; ok {
			lines = slices.Clone(steps)
			if line == "open" && v.Warm {
				lines = append(lines, macros["warm"]...)
			}
		}
		s := &scripts[len(scripts)-1]
		for _, line := range lines {
			step, err := parseStep(line, v)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			s.Steps = append(s.Steps, step)
		}
	}
	return scripts, nil
}

func parseStep(line string, v Variant) (Step, error) {
	m := lineForm.FindStringSubmatch(line)
	if m == nil {
		return Step{}, fmt.Errorf("%q is no step: want END[&THREAD] CALL ARGS", line)
	}
	s := Step{End: End(m[1][0])}
	if m[2] != "" {
		s.Thread = int(m[2][0] - '0')
	}
	for _, word := range strings.Fields(m[3]) {
		if ms, ok := strings.CutPrefix(word, "@"); ok {
			n, err := strconv.Atoi(ms)
			if err != nil {
				return Step{}, fmt.Errorf("%q: %q is no time in ms", line, word)
			}
			s.AtLeast = time.Duration(n) * time.Millisecond
			continue
		}
		word = strings.ReplaceAll(word, "$F", v.Family)
		if handle, call, ok := strings.Cut(word, "="); ok && len(s.Words) == 0 {
			if !makesDescriptor[call] {
				return Step{}, fmt.Errorf("%q: %s makes no descriptor", line, call)
			}
			s.Words = append(s.Words, handle, call)
			continue
		}
		s.Words = append(s.Words, word)
	}
	return s, nil
}
