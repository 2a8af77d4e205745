package apps_test

import (
	"fmt"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// nuttcp, whose sender is ended by an alarm and then looks at errno, whatever its last
// write said.
func TestNuttcp(t *testing.T) {
	root := debroot.Need(t, "nuttcp")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		control, data := freePort(), freePort()
		s.serve(control, "nuttcp", "-S", "--nofork", "-P", strconv.Itoa(control))
		for _, how := range [][]string{{}, {"-r"}, {"-N", "3"}, {"-l", "64"}} {
			args := append([]string{"-4", "-P", strconv.Itoa(control), "-p", strconv.Itoa(data), "-T", "1", "-fparse"}, how...)
			var rate float64
			text := s.run(nil, "nuttcp", append(args, "127.0.0.1")...)
			if _, err := fmt.Sscanf(string(text), "megabytes=%f", &rate); err != nil || rate == 0 {
				s.Errorf("nuttcp %v: %v\n%s", how, err, text)
			}
		}
		return ""
	}})
}
