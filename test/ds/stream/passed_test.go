package stream_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"exnet/test/ds"
)

// passed plays steps of passed.c by TCP and with the library, and says in which of its talks the two
// ends got lanes.
func passed(t *testing.T, steps []string) (lanes []int) {
	t.Helper()
	program := append([]string{ds.Build(t, "passed", nil, "passed.c")}, steps...)
	if _, text, err := preloadedWith(t, "", program); err != nil {
		t.Fatalf("%v, by TCP: %v\n%s", steps, err, text)
	}
	_, text, err := preloaded(t, program)
	if err != nil {
		t.Fatalf("%v: %v\n%s", steps, err, text)
	}
	talk, ends := 0, 0
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "talk "):
			talk++
			ends = 0
		case strings.Contains(line, " has lane "):
			if ends++; ends == 2 {
				lanes = append(lanes, talk)
			}
		}
	}
	return lanes
}

// Who receives a connection gets lanes once nobody else holds it, or may.
func TestPassed(t *testing.T) {
	unread := "0a" + strings.Repeat(" 0u", 20)
	for steps, lanes := range map[string][]int{
		"0a 0>1 0. 1< 1t":                         {1},
		"0c 0>1 0. 1< 1t":                         {1}, // the connecting end
		"0a 0r 0r 0r 0r 0r 0r 0r 0r 0>1 0. 1< 1t": {1}, // it looked for the other end already
		"0a 0! 0>1 0. 1< 1t":                      {1},
		"0a 0! 0t":                                {1}, // as if it had not tried
		"0a 0>1 1< 0! 0t 1. 0t":                   nil,
		"0a 0>>1 0. 1<< 1t":                       {1},
		"0a 0>!1 0. 1<! 1t":                       {1},
		"0a 0t 0>!1 0. 1< 1t":                     {1},
		"0a 0>1 1< 1t 0. 1t":                      {2},
		"0a 0r 0u 0u 0>1 0. 1< 1t":                {1}, // some bytes read, some not
		unread + " 0>1 0. 1< 1t":                  {1}, // more than it reads before it looks for its peer
		"0a 0>1 0. 1< 1>2 1. 2< 2t":               {1},
		"0a 0>1 1< 1t 0. 1>2 1t 1. 2< 2t":         {3}, // received, found free, and passed on
		"0a 0>1 0. 1< 1>0 0< 0t 1. 0t":            {2},
		"0a 0+ 0>1 0. 1< 1t 0. 1t":                {2},
		"0a 0>1 0. 1< 1f 1t 1F 1t":                {2},
		"0a 0f 0>1 0. 1< 1t 0F 1t":                nil, // who was killed said nothing
		"0a 0>1 1< 0k 1t":                         nil,
		"0a 0>1 1< 1>2 2< 0. 2t 1. 2t":            nil, // passed on before it was found free
		"0a 0>1 0>2 1< 0. 1t 2< 1. 2t":            nil, // twice
		"0a 0>1 1? 0. 1t 1< 1t":                   nil,
		"0a 0>0 0< 0. 0t":                         nil,
		"0a 0x 0>1 0. 1< 1t 0X 1t":                nil, // another program may hold it
		"0a 0>1 0x 0. 1< 1t 0X 1t":                nil,
		"0a 0o 0>1 0. 1< 1t":                      nil, // an option that lanes do not do
		"0a 0>1 0o 0. 1< 1t":                      nil,
		"0a 0t 0>1 0. 1< 1t 0k 1t":                {1}, // back on TCP for good
	} {
		if got := passed(t, strings.Fields(steps)); !slices.Equal(got, lanes) {
			t.Errorf("%s: lanes in talks %v, not %v", steps, got, lanes)
		}
	}
}

// holders knows who holds the connection while steps of passed.c are chosen.
type holders struct {
	fds    [3]int  // of each program
	child  [3]rune // what holds it beside the program: 'f', 'x' or nothing
	shares [3]bool // the child was made while the program held it
	mail   [3]int  // messages under way to each
	dead   [3]bool
	unread int // bytes since the last talk
}

func (h *holders) holds(i int) bool { return h.fds[i] > 0 }

// count says how many processes and messages hold it.
func (h *holders) count() (n int) {
	for i := range h.fds {
		n += h.mail[i]
		if h.holds(i) {
			n++
		}
		if h.shares[i] {
			n++
		}
	}
	return n
}

// choose returns a random step, or nothing if that one cannot be done now.
func (h *holders) choose(r *rand.Rand) string {
	i, j := r.IntN(3), r.IntN(3)
	if h.dead[i] {
		return ""
	}
	switch k := r.IntN(17); {
	case k < 4 && h.holds(i) && !h.dead[j]:
		h.mail[j]++
		return fmt.Sprintf("%d>%s%d", i, []string{"", ">", "!"}[r.IntN(3)], j)
	case k < 7 && h.mail[i] > 0:
		h.mail[i]--
		h.fds[i]++
		return fmt.Sprintf("%d<%s", i, []string{"", "<", "!"}[r.IntN(3)])
	case k < 11 && h.holds(i) && h.count() > 1:
		last := h.fds[i] == 1
		others := 0 // who can talk later
		for other := range h.fds {
			if other != i {
				others += h.fds[other] + h.mail[other]
			}
		}
		if last && others+h.mail[i] == 0 {
			return ""
		}
		h.fds[i]--
		return fmt.Sprintf("%d.", i)
	case k == 11 && h.holds(i):
		h.fds[i]++
		return fmt.Sprintf("%d+", i)
	case k == 12 && h.mail[i] > 0 && r.IntN(4) == 0:
		h.fds[i]++
		return fmt.Sprintf("%d?", i)
	case k == 13 && h.child[i] == 0 && r.IntN(4) == 0:
		h.child[i] = []rune("fx")[r.IntN(2)]
		h.shares[i] = h.holds(i)
		return fmt.Sprintf("%d%c", i, h.child[i])
	case k == 13 && h.child[i] != 0:
		step := fmt.Sprintf("%d%s", i, strings.ToUpper(string(h.child[i])))
		h.child[i], h.shares[i] = 0, false
		return step
	case k == 14 && h.holds(i) && h.unread < 5:
		h.unread++
		return fmt.Sprintf("%du", i)
	case k == 15 && h.child[i] == 0 && r.IntN(4) == 0:
		for other := range h.fds {
			if other != i && h.holds(other) {
				h.dead[i], h.fds[i] = true, 0
				return fmt.Sprintf("%dk", i)
			}
		}
	case k == 16 && h.holds(i):
		return fmt.Sprintf("%d!", i)
	}
	return ""
}

// Whatever three programs do, nobody gets a lane who does not hold the connection alone, and its bytes come in order.
func TestPassedAtRandom(t *testing.T) {
	ds.Build(t, "passed", nil, "passed.c")
	var all atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		if all.Load() == 0 && !ds.Late() && !ds.SeedsNamed() {
			t.Error("nobody got a lane")
		}
	})
	forSeeds(t, 12, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		h, steps := holders{}, []string{"0" + []string{"a", "c"}[r.IntN(2)]}
		h.fds[0] = 1
		var alone []bool // in each talk
		for len(steps) < 40 {
			if r.IntN(4) == 0 {
				if i := r.IntN(3); h.holds(i) {
					steps, alone, h.unread = append(steps, fmt.Sprintf("%dt", i)), append(alone, h.count() == 1), 0
				}
			} else if s := h.choose(r); s != "" {
				steps = append(steps, s)
			}
		}
		for _, talk := range passed(t, steps) {
			all.Add(1)
			if talk == 0 || !alone[talk-1] {
				t.Errorf("%v: a lane in talk %d, while others held the connection", steps, talk)
			}
		}
	})
}
