package status

import (
	"os"
	"strings"
	"testing"
)

// Every reason that a user can be shown is explained.
func TestReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reasons[1:] {
		if !strings.Contains(string(text), "\n| "+r.name+" | ") {
			t.Errorf("OPERATIONS.md has no row for the reason %q", r.name)
		}
	}
}
