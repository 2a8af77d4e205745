package script_test

import (
	"testing"

	"exnet/test/ds"
	"exnet/test/ds/script"
)

// finArrives is no script of testdata: a program that looks late, as on a busy machine, finds the
// shutdown and its acknowledgement, 40 ms later, in one event.
const finArrives = `script fin-arrives
open
warm
b set d quickack 0
a e=epoll
a ctl e add c out,et 3
a wait e 1000
a shutdown c wr
a wait e 1000
a wait e 1000
a wait e 10
`

// The acknowledgement of a shutdown, after a while, is news of its own.
func TestAcknowledgementIsNews(t *testing.T) {
	library := ds.Library(t)
	s := parse(t, finArrives)
	var want, got script.Log
	for range 50 { // until neither was late
		want = play(t, script.Stage{Player: player(t)}, s)
		got = play(t, script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t), early...)}, s)
		if script.Diff(want, got) == "" {
			return
		}
	}
	t.Errorf("TCP (-) and the library (+) always differ:\n%s", script.Diff(want, got))
}
