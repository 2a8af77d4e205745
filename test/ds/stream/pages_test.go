package stream_test

import (
	"regexp"
	"strconv"
	"testing"

	"exnet/test/ds"
)

// A forked process that takes a lane touches few pages for it: servers fork for each connection.
func TestFewPages(t *testing.T) {
	const connections, most = 4, 200
	program := []string{ds.Build(t, "pages", nil, "pages.c"), strconv.Itoa(connections)}
	lanes, text, err := preloaded(t, program)
	faults := regexp.MustCompile(`(?m)^(\d+) page faults$`).FindAllStringSubmatch(text, -1)
	if err != nil || lanes != 2*connections || len(faults) != connections {
		t.Fatalf("%v, %d lanes\n%s", err, lanes, text)
	}
	for _, f := range faults {
		if n, err := strconv.Atoi(f[1]); err != nil || n > most {
			t.Errorf("a process had %s", f[0])
		}
	}
	t.Log(faults)
}
