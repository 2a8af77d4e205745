package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

func TestChosenConditions(t *testing.T) {
	for names, want := range map[string]int{"all": len(conditions), "busy": 1, "one-cpu,slow-wakes": 2, "": -1, "fast": -1, "busy,": -1} {
		chosen, err := chosenConditions(names)
		if (err != nil) != (want < 0) || err == nil && len(chosen) != want {
			t.Errorf("%q: %d conditions, %v", names, len(chosen), err)
		}
	}
}

// What a condition has go test run is run under that condition.
func TestConditionHolds(t *testing.T) {
	for name, c := range map[string]struct{ program, says string }{
		"one-cpu":  {"nproc", "1\n"},
		"half-cpu": {"cat /proc/self/cgroup", "/exnet-adverse-"},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := chosenConditions(name)
			if err != nil {
				t.Fatal(err)
			}
			flags, end, err := chosen[0].begin(t.Context(), &suite{report: newReport(io.Discard)})
			if err != nil {
				t.Skip(err)
			}
			defer end()
			wrapper, _ := strings.CutPrefix(flags[0], "-exec=")
			text, err := exec.Command("sh", "-c", wrapper+" "+c.program).CombinedOutput()
			if err != nil || !strings.Contains(string(text), c.says) {
				t.Errorf("%s says %q, %v, want %q", c.program, text, err, c.says)
			}
		})
	}
}
