package apps_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"exnet/test/debroot"
)

// Redis that appends to a file, a replica that takes its data and then its commands,
// and scripts.
func TestRedisReplication(t *testing.T) {
	root := debroot.Need(t, "redis-server", "redis-tools")
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		dir := s.fresh("redis")
		start := func(replica bool, port int, flags ...string) {
			args := append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", filepath.Join(dir, strconv.Itoa(port))}, flags...)
			if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(port)), 0o755); err != nil {
				s.Fatal(err)
			}
			if replica {
				s.serveBehind(port, "redis-server", args...)
			} else {
				s.serve(port, "redis-server", args...)
			}
		}
		main, replica := freePort(), freePort()
		start(false, main, "--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0")
		cli := func(port int, input []byte, args ...string) []byte {
			return s.run(input, "redis-cli", append([]string{"-p", strconv.Itoa(port)}, args...)...)
		}
		var script bytes.Buffer
		for i := range 3000 {
			fmt.Fprintf(&script, "set key%d %s\n", i, strings.Repeat(strconv.Itoa(i), 300))
		}
		out := digest(cli(main, script.Bytes()))
		start(true, replica, "--replicaof", fmt.Sprintf("127.0.0.1 %d", main))
		s.run(nil, "redis-benchmark", "-p", strconv.Itoa(main), "-t", "set,lpush", "-c", "10", "-d", "200", "-r", "100", "-n", "20000", "-q")
		out += digest(cli(main, bytes.Repeat([]byte(`eval "for i = 1, 100 do redis.call('incrby', KEYS[1], i) end return redis.call('get', KEYS[1])" 1 sum`+"\n"), 200)))
		offset := func(port int, field string) string {
			m := regexp.MustCompile(field + `:(\d+)`).FindSubmatch(cli(port, nil, "info", "replication"))
			if m == nil {
				return ""
			}
			return string(m[1])
		}
		for begin := time.Now(); offset(replica, "slave_repl_offset") != offset(main, "master_repl_offset"); time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > patience() {
				s.Fatal("the replica does not catch up")
			}
		}
		for _, port := range []int{main, replica} {
			out += string(cli(port, nil, "dbsize")) + digest(cli(port, nil, "--raw", "mget", "key7", "key2999", "sum")) + string(cli(port, nil, "llen", "mylist"))
		}
		return out
	}})
}

// Three redis servers that are a cluster, whose clients are sent from one to the other.
func TestRedisCluster(t *testing.T) {
	root := debroot.Need(t, "redis-server", "redis-tools")
	// Two of the servers are at the clients' end.
	compare(t, scenario{root: root, lanes: true, among: true, play: func(s *stage) string {
		dir := s.fresh("cluster")
		var nodes []string
		first := 0
		for i := range 3 {
			port := freePort()
			for port >= 22768 { // the cluster's own port is higher by 10,000, and must not be one for clients
				port = freePort()
			}
			own := filepath.Join(dir, strconv.Itoa(port))
			if err := os.MkdirAll(own, 0o755); err != nil {
				s.Fatal(err)
			}
			serve := s.serve
			if i > 0 {
				serve = s.serveBehind
			} else {
				first = port
			}
			serve(port, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", own, "--cluster-enabled", "yes")
			nodes = append(nodes, fmt.Sprintf("127.0.0.1:%d", port))
		}
		s.run(nil, "redis-cli", append([]string{"--cluster", "create", "--cluster-yes"}, nodes...)...)
		cli := func(input []byte, args ...string) []byte {
			return s.run(input, "redis-cli", append([]string{"-c", "-p", strconv.Itoa(first)}, args...)...)
		}
		for _, node := range nodes {
			_, port, _ := strings.Cut(node, ":")
			info := func() []byte { return s.run(nil, "redis-cli", "-p", port, "cluster", "info") }
			for begin := time.Now(); !bytes.Contains(info(), []byte("cluster_state:ok")); time.Sleep(20 * time.Millisecond) {
				if time.Since(begin) > patience() {
					s.Fatalf("no cluster: %s", info())
				}
			}
		}
		var script, again bytes.Buffer
		for i := range 500 {
			fmt.Fprintf(&script, "set key%d %s\n", i, strings.Repeat(strconv.Itoa(i), 50))
			fmt.Fprintf(&again, "get key%d\n", i)
		}
		cli(script.Bytes())
		got := regexp.MustCompile(`(?m)^->.*$`).ReplaceAll(cli(again.Bytes()), nil) // where it was sent on
		text := s.run(nil, "redis-benchmark", "-p", strconv.Itoa(first), "--cluster", "-t", "set,get", "-c", "30", "-d", "500", "-r", "1000", "-n", "20000", "--csv")
		if bytes.Contains(text, []byte("rror")) {
			s.Errorf("redis-benchmark: %s", text)
		}
		return digest(got)
	}})
}
