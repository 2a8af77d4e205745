package stream_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"exnet/test/ds"
)

// Who waits for more than TCP takes (SO_RCVLOWAT) is told of less, as by TCP: else both sides would wait for ever.
func TestLowat(t *testing.T) {
	ds.Build(t, "lowat", nil, "lowat.c")
	forSeeds(t, 2, func(t *testing.T, seed uint64) {
		program := []string{ds.Build(t, "lowat", nil, "lowat.c"), "500", fmt.Sprint(seed)}
		if _, text, err := preloadedWith(t, "", program); err != nil {
			t.Fatalf("by TCP: %v\n%s", err, text)
		}
		for _, settings := range [][]string{nil, {"EXN_DS_TEST_NOCONSENT=1"}} { // which reads by TCP only
			lanes, text, err := preloaded(t, program, settings...)
			if err != nil || lanes != 2 {
				t.Errorf("%v: %v, %d lanes\n%s", settings, err, lanes, text)
			}
			early := regexp.MustCompile(`, (\d+) times told of less`).FindStringSubmatch(text)
			if early == nil {
				t.Errorf("%v: it said nothing\n%s", settings, text)
			} else if n, err := strconv.Atoi(early[1]); err != nil || n < 100 {
				t.Errorf("%v: only %s times there was less", settings, early[1])
			}
		}
	})
}
