package script_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// early makes the library try at once, so that directions switch in the middle
// of a script that has no warm-up. TCP knows no room that comes by itself, as it does on a lane
// after some time.
var early = []string{"EXN_DS_CALLS=1", "EXN_DS_BYTES=1", "EXN_DS_STUCK_MS=600000"}

var both = []script.End{script.A, script.B}

// DSS-1, DSC-1, OPT-1, PRC-1: a program sees with the library what it sees with
// TCP.
func TestLibraryIsLikeTCP(t *testing.T) {
	library := ds.Library(t)
	script.ByHand(t, 1, func(t *testing.T, s script.Script) {
		likeTCP(t, s, library, both)
	})
}

// DSS-2: likewise when the peer has no library.
func TestLibraryWithPlainPeer(t *testing.T) {
	library := ds.Library(t)
	for _, with := range []script.End{script.A, script.B} {
		t.Run(string(rune(with)), func(t *testing.T) {
			script.ByHand(t, 0, func(t *testing.T, s script.Script) {
				likeTCP(t, s, library, []script.End{with})
			})
		})
	}
}

func TestLibraryIsLikeTCPForSeeds(t *testing.T) {
	library := ds.Library(t)
	script.Generated(t, false, func(t *testing.T, s script.Script) {
		likeTCP(t, s, library, both)
	})
}

// An edge-triggered member is closed while a copy is open, which is no news; also
// where calls go through the library and the bytes by TCP all the same.
func TestCopyTakesThePlace(t *testing.T) {
	library := ds.Library(t)
	for name, settings := range map[string][]string{"on the lane": nil, "on TCP": {"EXN_DS_TEST_NOCONSENT=1"}} {
		t.Run(name, func(t *testing.T) {
			likeTCP(t, parse(t, `script copy
open
warm
a write c 10
b x=dup d
b e=epoll
b ctl e add d in,et 1
b wait e 100
b close d
b wait e 0
b wait e 0
a write c 10
b wait e 100
b wait e 0
b read x 100
a close c
b wait e 100
b wait e 0
`), library, both, settings...)
		})
	}
}

// FBK-1: likewise when directions go back to TCP and switch again at random.
func TestLibraryIsLikeTCPWhileSwitching(t *testing.T) {
	library := ds.Library(t)
	script.Generated(t, true, func(t *testing.T, s script.Script) {
		likeTCP(t, s, library, both, "EXN_DS_TEST_SWITCH=3")
	})
}

// A peer is killed with bytes unread that came by TCP, by the lane, or some by each, as
// chance has it: the reset is told by the first write, and once.
func TestDeathWhileSwitching(t *testing.T) {
	library := ds.Library(t)
	for name, text := range map[string]string{
		"while writing": "b write d 500\nb write d 500\nb write d 500\nb write d 500\na kill9\n" +
			"b send d 120 nosignal\nb poll 0 d in,out,rdhup\nb read d 10\nb send d 120 nosignal\n",
		"shut down": "a write c 500\na write c 500\na write c 500\na write c 500\na shutdown c wr\nb write d 16385\nb kill9\n" +
			"a send c 120 nosignal\na get c error\na poll 0 c in,out,rdhup\na recv c 40000\na recv c 10\n",
		"few bytes": "b write d 500\nb write d 500\na kill9\nb send d 500 nosignal\nb poll 0 d in,out,rdhup\nb send d 500 nosignal\n",
	} {
		for i := range ds.Seeds(t, 5) {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				likeTCP(t, parse(t, "script death\nopen\nwarm\n"+text), library, both, "EXN_DS_TEST_SWITCH=3")
			})
		}
	}
}

// A peer ends behind the bytes that it took back to TCP: that is an edge for who asked for
// EPOLLIN alone, also while what came by the lane before is unread.
func TestEndBehindTheLane(t *testing.T) {
	library := ds.Library(t)
	for name, text := range map[string]string{
		"told":     "a write c 100\nb wait e 4000\nb wait e 0\na shutdown c wr\nb wait e 100\nb wait e 0\nb recv d 10 dontwait\nb recv d 100 dontwait\nb recv d 100 dontwait\n",
		"a window": "a write c 16385\nb wait e 4000\na close c\nb wait e 100\nb wait e 0\nb recv d 10 dontwait\n",
	} {
		for i := range ds.Seeds(t, 20) {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				likeTCP(t, parse(t, "script end\nopen\nwarm\nb e=epoll\nb ctl e add d in,et 5\n"+text), library, both, "EXN_DS_TEST_SWITCH=3")
			})
		}
	}
}

// The comparisons above say nothing if no connection ever leaves TCP.
func TestWarmConnectionsUpgrade(t *testing.T) {
	library := ds.Library(t)
	const inherited = "script warm\nb l=listen $F\nb exec\na c=socket $F\na connect c $F $port\nb d=accept l\nwarm\n"
	for _, c := range []struct{ name, family, text string }{
		{"4", "4", "script warm\nopen\nwarm\n"},
		{"6", "6", "script warm\nopen\nwarm\n"},
		{"m", "m", "script warm\nopen\nwarm\n"},
		{"listener before exec", "4", inherited},
	} {
		t.Run(c.name, func(t *testing.T) {
			// By default settings, and no more than the warm-up that all scripts have.
			scripts, err := script.Parse(c.text, script.Variant{Family: c.family})
			if err != nil {
				t.Fatal(err)
			}
			env := ds.Preload(library, ds.Fabric(t))
			play(t, script.Stage{Player: player(t), Env: env, Before: func(pids map[script.End]int) {
				for _, end := range both {
					if most := busiest(t, pids[end]); most.VELO.Read+most.RMA.Read == 0 || most.VELO.Written+most.RMA.Written == 0 {
						t.Errorf("end %c: not upgraded both ways: %+v", end, most)
					}
				}
			}}, scripts[0])
		})
	}
}

// busiest is the socket of a process that has moved most bytes.
func busiest(t *testing.T, pid int) (most status.Socket) {
	t.Helper()
	p, found := status.Of(pid)
	if !found || p.Err != nil {
		t.Fatalf("process %d publishes nothing: %v", pid, p.Err)
	}
	bytes := func(s status.Socket) uint64 { return s.VELO.Sum() + s.RMA.Sum() + s.TCP.Sum() }
	for _, s := range p.Sockets {
		if bytes(s) >= bytes(most) {
			most = s
		}
	}
	return most
}

// mostShrunk bounds how many failing seeds are shrunk, which takes long: what
// breaks one seed often breaks many.
const mostShrunk = 3

var shrunk atomic.Int32

// withoutNagle says whether both ends of all connections have Nagle off, as a
// script must for TCP to answer it always alike.
func withoutNagle(s script.Script) bool {
	text := s.String()
	return strings.Count(text, " nodelay 1\n") >= 2*strings.Count(text, " connect ")
}

// likeTCP plays s over TCP and with the library at some ends. What TCP itself
// may give in some run is right; in practice it is always the same.
func likeTCP(t *testing.T, s script.Script, library string, with []script.End, settings ...string) {
	t.Helper()
	likeTCPBy(t, player(t), s, library, with, settings...)
}

// likeTCPBy does so with a player that may differ from that over TCP.
func likeTCPBy(t *testing.T, by string, s script.Script, library string, with []script.End, settings ...string) {
	t.Helper()
	plain := script.Stage{Player: player(t)}
	stage := func() script.Stage {
		env := make(map[script.End][]string)
		fabric := ds.Fabric(t)
		for _, end := range with {
			env[end] = ds.Preload(library, fabric, slices.Concat(early, settings)...)
		}
		return script.Stage{Player: by, EnvOf: env, Patience: 6 * time.Second}
	}

	want, err := script.Reference(plain, s)
	if err != nil {
		t.Fatalf("%v\n%v", err, want)
	}
	got := play(t, stage(), s)
	diff := script.Diff(want, got)
	if diff == "" {
		return
	}
	const again = 4
	for range again {
		if len(with) < len(both) { // it goes by TCP itself, which may do something later on a busy machine
			got = play(t, stage(), s)
		}
		if script.Diff(play(t, plain, s), got) == "" {
			return
		}
	}
	t.Errorf("%s: TCP (-) and the library (+) differ:\n%s", s.Name, diff)

	// The smallest script that always differs, if it does so reliably.
	budget := time.Now().Add(40 * time.Second)
	differs := func(s script.Script) bool {
		if time.Now().After(budget) || !withoutNagle(s) {
			return false
		}
		quick := plain
		quick.Patience = 2 * time.Second
		want, err1 := script.Play(quick, s)
		got, err2 := script.Play(stage(), s)
		if err1 != nil || err2 != nil || len(want) == 0 || want[len(want)-1].Outcome == "HUNG" {
			return false
		}
		return script.Diff(want, got) != ""
	}
	if !strings.HasPrefix(s.Name, "seed-") || shrunk.Add(1) > mostShrunk || !differs(s) {
		return
	}
	small := script.Shrink(s, differs)
	want, _ = script.Play(plain, small)
	got, _ = script.Play(stage(), small)
	t.Errorf("shrunk:\n%s\n%s", small, script.Diff(want, got))
}
