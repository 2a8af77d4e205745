package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
)

// Each load has lines of its own.
func TestLineOfASecond(t *testing.T) {
	for _, c := range []struct {
		client clientCommand
		done   int64
		want   string
	}{
		{clientCommand{}, 1e9, "  2.00-3.00 s   8.00 Gbit/s"},
		{clientCommand{UDP: true}, 5e8, "  2.00-3.00 s   4.00 Gbit/s sent"},
		{clientCommand{RR: true}, 10_000, "  2.00-3.00 s   10.0 k msg/s and their echoes, half a round trip 50.0 µs"},
		{clientCommand{RR: true}, 0, "  2.00-3.00 s   0 msg/s and their echoes"},
		{clientCommand{CRR: true}, 12_000, "  2.00-3.00 s   12.0 k conn/s"},
	} {
		s := session{clientCommand: c.client}
		if got := s.line(2*time.Second, 3*time.Second, c.done); got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}

// A client tells how fast it is while it runs, whatever it does.
func TestClientTellsEachSecond(t *testing.T) {
	_, port := aServer(t)
	line := regexp.MustCompile(`(?m)^ +\d+\.\d\d-\d+\.\d\d s   [1-9]`) // more than nothing
	for _, load := range []string{"--bidir", "--rr", "--crr", "--udp", "--ds", "--rr --ds"} {
		var out, errs bytes.Buffer
		args := append([]string{"client", "127.0.0.1", "-p", port, "-t", "2.5"}, strings.Fields(load)...)
		if load == "--ds" || load == "--rr --ds" { // channels to other processes stay as long as a process
			cmd, stdout, stderr, _ := program(t, args...)
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v: %s", load, err, stderr)
			}
			out = *stdout
		} else if code := run(args, &out, &errs); code != exitOK {
			t.Errorf("%s: exit code %d: %s", load, code, errs.String())
		}
		if !line.Match(out.Bytes()) {
			t.Errorf("%s: no line of a second in:\n%s", load, out.String())
		}
	}
}

// Nobody is told where nobody listens, and the teller ends with the run.
func TestTellEnds(t *testing.T) {
	s := new(session)
	s.tell(t.Context(), nil, new(measure.Meter), time.Millisecond)()
	var out bytes.Buffer
	stop := s.tell(t.Context(), &out, new(measure.Meter), time.Hour)
	stop()
	if out.Len() != 0 {
		t.Errorf("it said %q", out.String())
	}
}
