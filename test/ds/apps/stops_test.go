package apps_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Stopped at random, for a moment or for longer than any wait of the library, and
// continued, servers and clients notice nothing.
func TestStopped(t *testing.T) {
	root := debroot.Need(t, "python3")
	points := 20 // for each of the four pairs
	if ds.Long() {
		points = 250
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		random := rand.New(rand.NewPCG(1, 2))
		conversations := make(map[string]bool)
		for _, kind := range []string{"forking", "threading"} {
			port := freePort()
			server := s.serve(port, "python3", testdata(t, "pairs.py"), "serve", kind, strconv.Itoa(port))
			for _, way := range []string{"asyncio", "blocking"} {
				for left := points; left > 0 && !s.Failed(); {
					client := s.command(s.client, "python3", testdata(t, "pairs.py"), "talk", way, strconv.Itoa(port), "4", "60")
					var said strings.Builder
					client.Stdout, client.Stderr = &said, &said
					if err := client.Start(); err != nil {
						s.Fatal(err)
					}
					s.watch.follow(client.Process.Pid)
					ended := make(chan error, 1)
					go func() { ended <- client.Wait() }()
					var err error
					for running := true; running; {
						select {
						case err = <-ended:
							running = false
						case <-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond):
							groups := []int{server.Process.Pid, client.Process.Pid}
							// A child that was forked during a stop may have missed its end.
							for _, group := range groups {
								syscall.Kill(-group, syscall.SIGCONT)
							}
							if left--; left >= 0 {
								stop(random, groups[random.IntN(2)])
							}
						}
					}
					if err != nil {
						s.Errorf("%s, %s: %v\n%.4000s", kind, way, err, said.String())
					}
					conversations[fmt.Sprintf("%s, %s:\n%s", kind, way, said.String())] = true
				}
			}
		}
		// Each pair says the same each time: what is said once only is another entry.
		return strings.Join(slices.Sorted(maps.Keys(conversations)), "\n")
	}})
}

// stop stops a group of processes for some time; one that has ended is left alone.
func stop(random *rand.Rand, group int) {
	pause := time.Duration(random.IntN(10_000)) * time.Microsecond
	if random.IntN(50) == 0 {
		pause = 1300 * time.Millisecond // a peer gives up after 1 s what it may give up
	}
	if syscall.Kill(-group, syscall.SIGSTOP) != nil {
		return
	}
	time.Sleep(pause)
	syscall.Kill(-group, syscall.SIGCONT)
}
