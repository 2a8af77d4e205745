package apps_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"exnet/test/debroot"
)

// Mosquitto between a publisher and subscribers that have sessions, so that each gets
// each message.
func TestMosquitto(t *testing.T) {
	root := debroot.Need(t, "mosquitto", "mosquitto-clients")
	const subscribers, messages = 5, 2000
	var script bytes.Buffer
	for i := range messages {
		fmt.Fprintf(&script, "%d %s\n", i, strings.Repeat("x", i%3000))
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		config := s.write("mosquitto.conf", fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\nuser root\nmax_queued_messages 0\n", port))
		s.serve(port, "mosquitto", "-c", config)
		subscribe := func(i int, flags ...string) []byte {
			return s.run(nil, "mosquitto_sub", append(flags, "-p", strconv.Itoa(port), "-t", "news", "-q", "1", "-c", "-i", "s"+strconv.Itoa(i))...)
		}
		got := make([]string, subscribers)
		var wait sync.WaitGroup
		for i := range subscribers {
			subscribe(i, "-E") // makes the session, and ends
			wait.Add(1)
			go func() {
				defer wait.Done()
				got[i] = digest(subscribe(i, "-C", strconv.Itoa(messages)))
			}()
		}
		s.run(script.Bytes(), "mosquitto_pub", "-p", strconv.Itoa(port), "-t", "news", "-q", "1", "-l")
		wait.Wait()
		return fmt.Sprint(got)
	}})
}
