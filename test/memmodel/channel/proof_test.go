package channel

import (
	"slices"
	"strings"
	"testing"

	. "exnet/test/memmodel"
)

// A rule is a row of the tables: a rule's name, the strongest memory on which breaking it breaks
// the protocol, and how.
type rule struct {
	name   string
	breaks Memory
	how    string
}

// The ways in which protocols break.
const (
	lost = "asleep for ever" // a lost wake-up
	// a message lost, doubled, reordered, torn or overwritten; or an access to reused memory
	damaged = " expects "
	stuck   = "runs in a circle"
)

// holds proves models on every memory.
func holds(t *testing.T, models ...*Model) {
	t.Helper()
	for _, m := range models {
		for _, memory := range Memories {
			r := explore(t, m, Run{Memory: memory})
			t.Log(r)
			if r.CounterExample != nil {
				t.Errorf("%s does not hold", m.Name())
			}
			if r.Bounded {
				t.Errorf("%s on %s was not explored to the end", m.Name(), memory)
			}
		}
	}
}

// needs shows that a protocol needs each of its rules, and on which memories. Without the rule, one
// of the models must break on these memories, and none on the others. The table must name all
// rules.
func needs(t *testing.T, rules []rule, models ...*Model) {
	t.Helper()
	var marked, listed []string
	for _, m := range models {
		marked = append(marked, m.Rules()...)
	}
	slices.Sort(marked)
	for _, rule := range rules {
		listed = append(listed, rule.name)
	}
	slices.Sort(listed)
	if marked = slices.Compact(marked); !slices.Equal(marked, listed) {
		t.Errorf("the models have the rules\n%s\nthe table has\n%s", strings.Join(marked, "\n"), strings.Join(listed, "\n"))
	}

	for _, rule := range rules {
		for _, memory := range Memories {
			broken := false
			for _, m := range models {
				if !slices.Contains(m.Rules(), rule.name) {
					continue
				}
				r := explore(t, m, Run{Memory: memory, Without: rule.name})
				if r.CounterExample == nil {
					continue
				}
				broken = true
				if !strings.Contains(r.CounterExample.What, rule.how) {
					t.Errorf("want %q, got %s", rule.how, r)
				}
				t.Logf("%s, without %q: %d states: %s", memory, rule.name, r.States, r.CounterExample.What)
				break
			}
			if broken != (memory >= rule.breaks) {
				t.Errorf("%s, without %q: broken: %v", memory, rule.name, broken)
			}
		}
	}
}

func explore(t *testing.T, m *Model, run Run) *Result {
	t.Helper()
	r, err := m.Explore(run)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
