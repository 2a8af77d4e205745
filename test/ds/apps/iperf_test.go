package apps_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// iperf3 in all directions: control connection, select and non-blocking writes.
func TestIperf3(t *testing.T) {
	root := debroot.Need(t, "iperf3")
	amount := "300M"
	if ds.Long() {
		amount = "10G"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		var out strings.Builder
		for _, flags := range [][]string{{}, {"-R"}, {"--bidir"}, {"-P", "4"}, {"-l", "1000", "-n", "100M"}, {"-6"}} {
			port := freePort()
			s.serve(port, "iperf3", "-s", "-1", "-p", strconv.Itoa(port))
			host := "127.0.0.1"
			if len(flags) > 0 && flags[0] == "-6" {
				host = "::1"
			}
			args := append([]string{"-c", host, "-p", strconv.Itoa(port), "-J", "-n", amount}, flags...)
			text := s.run(nil, "iperf3", args...)
			var result struct {
				Error string
				Start struct{ Connected []any }
				End   struct {
					Streams     []any
					SumSent     struct{ Bytes float64 } `json:"sum_sent"`
					SumReceived struct{ Bytes float64 } `json:"sum_received"`
				}
			}
			if err := json.Unmarshal(text, &result); err != nil {
				s.Errorf("iperf3 %v: %v\n%.1000s", flags, err, text)
				continue
			}
			end := result.End
			// The receiver stops to count when it is told of the end, not at it: what
			// buffers hold then, up to 10 MB, is missing.
			if end.SumReceived.Bytes < 0.5*end.SumSent.Bytes || end.SumReceived.Bytes > end.SumSent.Bytes {
				s.Errorf("iperf3 %v: sent %.0f, received %.0f", flags, end.SumSent.Bytes, end.SumReceived.Bytes)
			}
			fmt.Fprintf(&out, "%v: error %q, %d connected, %d streams\n", flags, result.Error, len(result.Start.Connected), len(end.Streams))
		}
		return out.String()
	}})
}

// iperf 2, whose server asks for SO_TIMESTAMP and never for the times. That server now
// and then corrupts its own heap as a client ends, by TCP too, and falls at the next:
// each client has its own.
func TestIperf2(t *testing.T) {
	root := debroot.Need(t, "iperf")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		for _, how := range [][]string{{}, {"-R"}, {"--full-duplex"}, {"-P", "4"}, {"-l", "1000"}} {
			port := freePort()
			s.serve(port, "iperf", "-s", "-p", strconv.Itoa(port))
			args := append([]string{"-c", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "1", "-y", "C"}, how...)
			text := strings.TrimSpace(string(s.run(nil, "iperf", args...)))
			last := strings.Split(text[strings.LastIndexByte(text, '\n')+1:], ",")
			if rate, err := strconv.ParseFloat(last[len(last)-1], 64); err != nil || rate < 1e6 {
				s.Errorf("iperf %v: %v\n%s", how, err, text)
			}
		}
		return ""
	}})
}
