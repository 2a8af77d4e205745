package emu

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exnet/fabric"
)

// TestScenarioIsTheGoAPI: a file and the same calls give the same trace.
func TestScenarioIsTheGoAPI(t *testing.T) {
	const any = fabric.NodeAny
	run := func(play func(*Network)) string {
		var trace bytes.Buffer
		inBubble(t, Config{Seed: 5, Trace: &trace}, func(p *pair) {
			play(p.net)
			for range 20 {
				// until the crash
				p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, make([]byte, 100))
				p.post(fabric.Put, 3000)
				time.Sleep(10 * us)
				p.polled(1)
				p.notified(0)
				p.notified(1)
			}
			time.Sleep(time.Millisecond)
		})
		return trace.String()
	}
	byFile := run(func(n *Network) {
		s, err := ParseScenario(strings.NewReader(`
# a bit of everything
link * -> *	latency 2us jitter 500ns bandwidth 1.5G # a comment
link 1 -> 2	errors 1e-4 retries 3 250ns credit-delay 7us

at 20us		link 1 <-> 2 down
at 30us		link 1 <-> 2 up
at 0.05ms	link * -> 2 stall 15us bandwidth 10M
at 100us	link 2 -> 1 dead
at 110us	link 2 -> 1 up bandwidth 0
at 150us	crash 2`))
		if err != nil {
			t.Fatal(err)
		}
		n.Play(s)
	})
	byCalls := run(func(n *Network) {
		n.Link(any, any).Set(Latency(2*us), Jitter(500), Bandwidth(1.5e9))
		n.Link(1, 2).Set(BitErrors(1e-4), Retries(3, 250), CreditDelay(7*us))
		n.At(20*us, func() {
			n.Link(1, 2).Set(Down)
			n.Link(2, 1).Set(Down)
		})
		n.At(30*us, func() {
			n.Link(1, 2).Set(Up)
			n.Link(2, 1).Set(Up)
		})
		n.At(50*us, func() { n.Link(any, 2).Set(Stall(15*us), Bandwidth(10e6)) })
		n.At(100*us, func() { n.Link(2, 1).Set(Dead) })
		n.At(110*us, func() { n.Link(2, 1).Set(Up, Bandwidth(0)) })
		n.At(150*us, func() { n.Crash(2) })
	})
	if byFile != byCalls {
		t.Errorf("the file gives\n%s\nthe calls\n%s", byFile, byCalls)
	}
	if !strings.Contains(byFile, "gave up") || !strings.Contains(byFile, "bad CRC") || !strings.Contains(byFile, "lost") {
		t.Errorf("the scenario had no effect:\n%s", byFile)
	}
}

func TestScenarioErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"\n\nlink 1 -> 2 down now":    `line 3: "now" is not a setting`,
		"hello":                       `line 1: "hello" is not a statement`,
		"at":                          "line 1: the line ends where a duration should be",
		"at 5":                        `line 1: "5" is not a duration`,
		"at -5s link 1 -> 2 up":       `line 1: "-5s" is not a duration`,
		"at 5s":                       "line 1: the line ends where a statement should be",
		"at 5s at 6s crash 1":         `line 1: "at" is not a statement`,
		"# fine\nlink":                "line 2: the line ends where a node should be",
		"link one -> 2 up":            `line 1: "one" is not a node`,
		"link 65535 -> 2 up":          `line 1: "65535" is not a node`,
		"link 1 => 2 up":              `line 1: "=>" is not a direction`,
		"link 1 -> 2":                 "line 1: the line ends where a setting should be",
		"link 1 -> 2 latency":         "line 1: the line ends where a duration should be",
		"link 1 -> 2 latency fast":    `line 1: "fast" is not a duration`,
		"link 1 -> 2 errors 1.5":      `line 1: "1.5" is not an error rate`,
		"link 1 -> 2 errors NaN":      `line 1: "NaN" is not an error rate`,
		"link 1 -> 2 bandwidth 10X":   `line 1: "10X" is not a bandwidth`,
		"link 1 -> 2 bandwidth -1G":   `line 1: "-1" is not a bandwidth`,
		"link 1 -> 2 bandwidth":       "line 1: the line ends where a bandwidth",
		"link 1 -> 2 retries 1.5 1us": "line 1: 1.5 retries",
		"link 1 -> 2 retries 3":       "line 1: the line ends where a duration should be",
		"crash":                       "line 1: the line ends where a node should be",
		"crash *":                     "line 1: crash one node at a time",
		"crash 1 2":                   `line 1: "2" is left over`,
		"link 1 -> 2 up\n" + strings.Repeat("x", 1<<17): "scenario: bufio.Scanner: token too long",
	} {
		if _, err := ParseScenario(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	broken := errors.New("broken disk")
	if _, err := ParseScenario(failingReader{broken}); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// FuzzScenario: any text is an error or a scenario that can be played.
func FuzzScenario(f *testing.F) {
	f.Add("link * -> *    latency 2us jitter 500ns bandwidth 100G\nat 1s crash 3")
	f.Add("link 1 <-> 2 errors 1e-7 retries 16 1us credit-delay 10us stall 5ms down up dead # x")
	f.Add("at 9999999h link 1 -> 2 bandwidth 1e-300 latency 2540400h")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScenario(strings.NewReader(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "scenario") {
				t.Errorf("the error does not say where: %v", err)
			}
			return
		}
		synctest.Test(t, func(t *testing.T) {
			n := New(Config{})
			defer n.Close()
			n.Play(s)
			for id := range fabric.NodeID(3) {
				m, err := n.Attach(id)
				if err != nil {
					t.Fatal(err)
				}
				p, err := m.OpenVELO(1, fabric.PortInterrupts{})
				if err != nil {
					t.Fatal(err)
				}
				for to := range fabric.NodeID(3) {
					p.Send(fabric.VELODescriptor{To: fabric.Address{Node: to, VPID: 1}}, []byte{1})
				}
			}
			time.Sleep(time.Millisecond)
		})
	})
}
