package status

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// document has the table of reasons, between two marker lines.
const (
	document   = "../../docs/troubleshooting.md"
	tableBegin = "<!-- reasons: made from directsockets/status/state.go -->\n"
	tableEnd   = "<!-- end of reasons -->\n"
)

// The table in the document equals the one in the code. EXNET_UPDATE=1 writes it.
func TestReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	got, after, ended := strings.Cut(rest, tableEnd)
	if !found || !ended {
		t.Fatalf("%s has no table between %q and %q", document, tableBegin, tableEnd)
	}
	want := reasonTable()
	if got == want {
		return
	}
	if os.Getenv("EXNET_UPDATE") == "" {
		t.Fatalf("%s differs from the table of the code; EXNET_UPDATE=1 go test ./directsockets/status writes it. Want:\n%s", document, want)
	}
	if err := os.WriteFile(document, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each reason has text for all three columns, and one line for each.
func TestReasonsAreComplete(t *testing.T) {
	for i, r := range reasons[1:] {
		for _, words := range []string{r.name, r.meaning, r.remedy} {
			if words == "" || strings.ContainsAny(words, "|\n") {
				t.Errorf("reason %d: %q cannot be a cell of the table", i+1, words)
			}
		}
		if n := len(Reason(i + 1).Meaning()); n < 10 {
			t.Errorf("reason %q has no meaning", r.name)
		}
	}
}

func reasonTable() string {
	var b strings.Builder
	b.WriteString("| reason | meaning | remedy |\n|---|---|---|\n")
	for _, r := range reasons[1:] {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.name, r.meaning, r.remedy)
	}
	return b.String()
}
