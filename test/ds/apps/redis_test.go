package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// A Go program with redigo and its pool, over package directsockets.
func TestRedisFromGo(t *testing.T) {
	root := debroot.Need(t, "redis-server", "golang-github-gomodule-redigo-dev")
	program := driver(t, root, "redisdriver", "github.com/gomodule/redigo")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
		mine := filepath.Join(s.dir, "redisdriver")
		if err := os.WriteFile(mine, program, 0o755); err != nil {
			s.Fatal(err)
		}
		command := []string{mine, strconv.Itoa(port)}
		if len(s.client) == 0 {
			command = append([]string{"env", "EXN_DS=off"}, command...)
		}
		var out bytes.Buffer
		s.pipe(nil, &out, command[0], command[1:]...)
		return out.String()
	}})
}

// Redis with the clients of redis-benchmark, and what redis-cli then finds.
func TestRedis(t *testing.T) {
	playRedis(t, debroot.Need(t, "redis-server", "redis-tools"))
}

// The same on an older C library than those that the library can be built on.
func TestRedisOfOldRelease(t *testing.T) {
	playRedis(t, debroot.NeedRelease(t, "bullseye", "redis-server", "redis-tools", "dash", "coreutils"))
}

func playRedis(t *testing.T, root *debroot.Root) {
	requests := "20000"
	if ds.Long() {
		requests = "1000000"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		port := freePort()
		s.serve(port, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
		cli := func(input []byte, args ...string) []byte {
			return s.run(input, "redis-cli", append([]string{"-p", strconv.Itoa(port)}, args...)...)
		}
		var out strings.Builder
		for _, load := range [][]string{
			{"-t", "set,get", "-c", "50", "-d", "100", "-n", requests},
			{"-t", "set,get", "-c", "1", "-d", "3"},
			{"-t", "set,get", "-c", "20", "-P", "16", "-d", "4000", "-n", requests},
			{"-t", "lpush,lrange_100", "-c", "20"},
			{"-t", "set", "-c", "50", "-k", "0"}, // a connection for each request
			{"-t", "get", "-c", "500", "-n", requests},
		} {
			// 100 keys, so that all of them are hit whatever the seed of the benchmark.
			args := append([]string{"-p", strconv.Itoa(port), "--csv", "-r", "100", "-n", "2000"}, load...)
			text := s.run(nil, "redis-benchmark", args...)
			out.Write(regexp.MustCompile(`(?m)^"[A-Z][^"]*"`).Find(text))
			if bytes.Contains(text, []byte("rror")) {
				s.Errorf("redis-benchmark: %s", text)
			}
		}
		big := make([]byte, 3<<20)
		rand.NewChaCha8([32]byte{}).Read(big)
		fmt.Fprintf(&out, "\nset big: %s", cli(big, "-x", "set", "big"))
		got := bytes.TrimSuffix(cli(nil, "--raw", "get", "big"), []byte("\n"))
		fmt.Fprintf(&out, "big: %x\n", sha256.Sum256(got))
		if !bytes.Equal(got, big) {
			s.Errorf("a value of %d bytes came back as %d other ones", len(big), len(got))
		}
		var script bytes.Buffer
		for i := range 500 {
			fmt.Fprintf(&script, "rpush list %d\nincrby sum %d\nget sum\n", i, i)
		}
		fmt.Fprintf(&out, "script: %x\n", sha256.Sum256(cli(script.Bytes())))
		fmt.Fprintf(&out, "list: %x\n", sha256.Sum256(cli(nil, "lrange", "list", "0", "-1")))
		fmt.Fprintf(&out, "keys: %s", cli(nil, "dbsize"))
		out.WriteString(saved(s, port, cli))
		out.WriteString(published(s, port))
		// How often each command ran and failed: none may be lost or come twice.
		var counts []string
		stats := cli(nil, "info", "commandstats")
		for _, m := range regexp.MustCompile(`cmdstat_(set|get|lpush|lrange|rpush|incrby):calls=(\d+),.*(rejected_calls=\d+,failed_calls=\d+)`).FindAllSubmatch(stats, -1) {
			counts = append(counts, fmt.Sprintf("%s %s %s\n", m[1], m[2], m[3]))
		}
		slices.Sort(counts)
		fmt.Fprint(&out, counts)
		return out.String()
	}})
}

// saved has a forked child write a snapshot while the server goes on, and asks
// another server what it reads from that.
func saved(s *stage, port int, cli func(input []byte, args ...string) []byte) string {
	cli(nil, "bgsave")
	for i := range 100 {
		cli(nil, "set", "during", strconv.Itoa(i))
	}
	for bytes.Contains(cli(nil, "info", "persistence"), []byte("rdb_bgsave_in_progress:1")) {
		time.Sleep(10 * time.Millisecond)
	}
	cli(nil, "save") // what was set during the other is in this one
	status := regexp.MustCompile(`rdb_last_bgsave_status:\w+`).Find(cli(nil, "info", "persistence"))
	again := freePort()
	s.serve(again, "redis-server", "--port", strconv.Itoa(again), "--bind", "127.0.0.1", "--save", "", "--dir", s.dir)
	text := s.run(nil, "redis-cli", "-p", strconv.Itoa(again), "--raw", "get", "big")
	during := s.run(nil, "redis-cli", "-p", strconv.Itoa(again), "get", "during")
	os.Remove(filepath.Join(s.dir, "dump.rdb")) // the next stage begins without
	return fmt.Sprintf("saved: %s, %x, during %s", status, sha256.Sum256(text), during)
}

// published sends messages to subscribers, which sleep most of the time.
func published(s *stage, port int) string {
	const subscribers, messages = 10, 200
	var wait sync.WaitGroup
	digests := make([][32]byte, subscribers)
	for i := range subscribers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			// It ends by itself when the server closes its connection.
			cmd := s.command(s.client, "redis-cli", "-p", strconv.Itoa(port), "subscribe", "news")
			out, _ := cmd.Output() // the end is abrupt
			digests[i] = sha256.Sum256(out)
		}()
	}
	cli := func(args ...string) string {
		return string(s.run(nil, "redis-cli", append([]string{"-p", strconv.Itoa(port)}, args...)...))
	}
	for !strings.HasSuffix(strings.TrimSpace(cli("pubsub", "numsub", "news")), "\n"+strconv.Itoa(subscribers)) && s.ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	var script bytes.Buffer
	for i := range messages {
		fmt.Fprintf(&script, "publish news %d-%s\n", i, strings.Repeat("x", i*7))
	}
	got := s.run(script.Bytes(), "redis-cli", "-p", strconv.Itoa(port))
	cli("client", "kill", "type", "pubsub")
	wait.Wait()
	return fmt.Sprintf("published: to %x, %x\n", sha256.Sum256(got), digests)
}
