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

// passed plays steps of passed.c by TCP and with the library, and says which of its talks ended on
// lanes.
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
	for line := range strings.Lines(text) {
		var talk int
		var by string
		if n, _ := fmt.Sscanf(line, "talk %d by %s", &talk, &by); n == 2 && by == "lanes" {
			lanes = append(lanes, talk)
		}
	}
	return lanes
}

// plays plays each of these, after the talks of which that are named it has to be on lanes.
func plays(t *testing.T, all map[string][]int) {
	ds.Build(t, "passed", nil, "passed.c")
	for steps, lanes := range all {
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			if got := passed(t, strings.Fields(steps)); !slices.Equal(got, lanes) {
				t.Errorf("lanes after talks %v, not %v", got, lanes)
			}
		})
	}
}

// Who receives a connection gets lanes once nobody else holds it, or may.
func TestPassed(t *testing.T) {
	unread := "0a" + strings.Repeat(" 0u", 20)
	plays(t, map[string][]int{
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
		"0a 0>1 0. 1< 1f 1t 1F 1T":                {2},
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
		"0a 0>1 1< 1g 1>2 2< 2t 1i":               nil, // nor do they signal, and who asked for it goes on to be told
		"0a 0t 0>1 0. 1< 1t 0k 1t":                {1}, // back on TCP for good
	})
}

// What a program inherits is by TCP while that may have it, and by lanes afterwards.
func TestInherited(t *testing.T) {
	plays(t, map[string][]int{
		"0a 0t 0x 0t 0s 0t 0X 0T":                {1, 4},
		"0c 0t 0x 0t 0s 0t 0X 0T":                {1, 4}, // by the connecting end
		"0a 0x 0t 0s 0t 0X 0T":                   {3},    // before it had a lane
		"0a 0r 0r 0r 0r 0r 0r 0r 0r 0x 0t 0X 0T": {2},    // while it looked for the other end
		"0a 0t 0e 0t 0s 0t 0X 0T":                {1, 4}, // by fork and exec
		"0a 0e 0t 0s 0t 0X 0T":                   {3},
		"0a 0t 0p 0t 0s 0t 0X 0T":                {1, 4}, // by a program of a program
		"0a 0t 0q 0t 0X 0T":                      {1, 3},
		"0a 0t 0y 0T 0y 0T 0y 0T":                {1, 2, 3, 4},
		"0a 0W":                                  {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37}, // no sleep of the peer's ends early
		"0a 0y 0t":                               {1},
		"0a 0t 0u 0u 0x 0t 0X 0T":                {1, 3}, // bytes unread on the lane
		"0a 0t 0+ 0x 0. 0t 0X 0T":                {1, 3},
		"0a 0t 0x 0t 0X 0x 0t 0s 0t 0X 0T":       {1, 5}, // again, before it was back
		"0a 0t 0x 0t 0X 0T 0x 0t 0X 0T":          {1, 3, 5},
		"0a 0t 0m1 0s 0t 0s 0t 1< 1t 0. 1t":      {1}, // the program has passed it on
		"0a 0t 0Y 0t 0s 0t":                      {1}, // the program has read from it
		"0a 0t 0Z 0t 0s 0t":                      {1}, // or written to it
		"0z 0c 0t 0x 0t 0X 0s 0t 0s 0t 0s 0t":    {1}, // given to the program on purpose, most likely
		"0a 0Y 0t 0s 0t":                         nil,
		"0a 0x 0X 0>1 0. 1< 1t":                  {1}, // and passed on
		"0a 0t 0x 0t 0X 0T 0>1 0. 1< 1t":         {1, 3},
	})
}

// Who did not answer when a program was started is not held for one that never will.
func TestInheritedUnanswered(t *testing.T) {
	plays(t, map[string][]int{"0a 0t 0h 0t 0L": {1, 3}})
}

// While programs come and go that inherit a connection nothing is lost, and it is on its lane between them.
func TestInheritedAtRandom(t *testing.T) {
	program, prompt, tardy := ds.Build(t, "inherited", nil, "inherited.c"), ds.Library(t), ds.Tardy(t)
	var back atomic.Int64
	t.Cleanup(func() { // once all seeds are through
		t.Logf("%d times back on the lane", back.Load())
		if back.Load() == 0 && !ds.Sampled() {
			t.Error("nobody got back to the lane")
		}
	})
	forSeeds(t, 8, func(t *testing.T, seed uint64) {
		often := fmt.Sprintf("EXN_DS_TEST_SWITCH=%d", []int{0, 3, 200}[seed%3])
		library := prompt
		if seed%2 == 0 {
			library = tardy // so that what its writers post crosses what a program's start changes
		}
		_, text, err := preloadedWith(t, library, []string{program, fmt.Sprint(seed)}, often, "TARDY=posts")
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, text)
		}
		back.Add(resumed(text))
	})
}

// holders knows who holds the connection while steps of passed.c are chosen.
type holders struct {
	fds    [3]int  // of each program
	child  [3]rune // what holds it beside the program: 'f', 'x', 'e', 'p' or nothing
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

// alone: this program holds it and no other. Its own forked child may share its lane.
func (h *holders) alone(i int) bool {
	n := h.count()
	if h.shares[i] && h.child[i] == 'f' {
		n--
	}
	return n == 1
}

// choose returns a random step, or nothing if that one cannot be done now.
func (h *holders) choose(r *rand.Rand) string {
	i, j := r.IntN(3), r.IntN(3)
	if h.dead[i] {
		return ""
	}
	switch k := r.IntN(19); {
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
		h.child[i] = []rune("fxep")[r.IntN(4)]
		h.shares[i] = h.holds(i)
		return fmt.Sprintf("%d%c", i, h.child[i])
	case k == 13 && h.child[i] != 0:
		step := fmt.Sprintf("%dX", i)
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
	case k == 17 && h.holds(i):
		return fmt.Sprintf("%dy", i)
	case k == 18:
		return "0s"
	}
	return ""
}

// Whatever three programs do, nobody gets a lane who does not hold the connection alone, and its bytes come in order.
func TestPassedAtRandom(t *testing.T) {
	ds.Build(t, "passed", nil, "passed.c")
	var all atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		if all.Load() == 0 && !ds.Sampled() {
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
					steps, alone, h.unread = append(steps, fmt.Sprintf("%dt", i)), append(alone, h.alone(i)), 0
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
