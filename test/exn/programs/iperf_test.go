package programs

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/exn"
)

// iperf3 runs in all its directions, with TCP and UDP.
func TestIperf3(t *testing.T) {
	root := debroot.Need(t, "iperf3")
	runs := [][]string{
		{"-n", "300M"},
		{"-n", "300M", "-R"},
		{"-n", "100M", "--bidir"},
		{"-n", "300M", "-P", "8"},
		{"-n", "300M", "-6"},
		{"-n", "10M", "-u", "-b", "500M", "-l", "1400"},
	}
	mtus := []int{65535}
	if !testing.Short() {
		mtus = []int{65535, 9000, 1500}
		runs = append(runs, [][]string{
			{"-n", "2G"}, {"-n", "2G", "-6", "-R"}, {"-n", "2G", "--bidir", "-P", "4"},
			{"-n", "20M", "-l", "100", "-N"},
			{"-n", "10M", "-u", "-b", "200M", "-l", "60000"},
			{"-n", "10M", "-u", "-b", "200M", "-6", "-R", "-l", "8192"},
			// as fast as possible: the losses must not disturb the next test
			{"-t", "2", "-u", "-b", "0"},
			{"-n", "300M"},
		}...)
	}
	for _, mtu := range mtus {
		f := exn.Up(t, exn.Options{MTU: []int{mtu}})
		a, b := f.Nodes[0], f.Nodes[1]
		for i, flags := range runs {
			port := 5201 + i
			b.Serve(port, b.Program(root, "iperf3", "-s", "-1", "-p", strconv.Itoa(port)))
			to := b.IPv4
			if strings.Contains(strings.Join(flags, " "), "-6") {
				to = b.IPv6
			}
			args := append([]string{"-c", to.String(), "-p", strconv.Itoa(port), "-J"}, flags...)
			text := a.Run(a.Program(root, "iperf3", args...))
			var result struct {
				Error string
				End   struct {
					SumSent     struct{ Bytes float64 } `json:"sum_sent"`
					SumReceived struct{ Bytes float64 } `json:"sum_received"`
					Sum         struct {
						Bytes          float64
						LostPackets    float64 `json:"lost_packets"`
						Packets        float64
						LostPercentage float64 `json:"lost_percent"`
						OutOfOrder     float64 `json:"out_of_order"`
					} `json:"sum"`
				}
			}
			if err := json.Unmarshal(text, &result); err != nil {
				t.Errorf("iperf3 %v: %v\n%.1000s", flags, err, text)
				continue
			}
			end := result.End
			udp := strings.Contains(strings.Join(flags, " "), "-u")
			switch {
			case result.Error != "":
				t.Errorf("iperf3 %v, MTU %d: %s", flags, mtu, result.Error)
			case udp && end.Sum.Packets-end.Sum.LostPackets <= 0:
				t.Errorf("iperf3 %v, MTU %d: %v of %v datagrams were lost", flags, mtu, end.Sum.LostPackets, end.Sum.Packets)
			case udp && end.Sum.OutOfOrder > 0:
				t.Errorf("iperf3 %v, MTU %d: %v datagrams came out of order", flags, mtu, end.Sum.OutOfOrder)
			// The receiver stops counting when it is told of the end, not at the end
			// itself.
			case !udp && (end.SumReceived.Bytes < 0.5*end.SumSent.Bytes || end.SumReceived.Bytes > end.SumSent.Bytes):
				t.Errorf("iperf3 %v, MTU %d: sent %.0f, received %.0f", flags, mtu, end.SumSent.Bytes, end.SumReceived.Bytes)
			}
		}
	}
}
