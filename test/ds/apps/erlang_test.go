package apps_test

import (
	"slices"
	"strconv"
	"testing"

	"exnet/test/debroot"
)

// Erlang's virtual machine: sockets of each active mode, with each at the other end, and
// two nodes that are connected.
func TestErlang(t *testing.T) {
	root := debroot.Need(t, "erlang-base")
	beams := t.TempDir()
	if out, err := root.Command(t.Context(), "erlc", "-o", beams, testdata(t, "talk.erl")).CombinedOutput(); err != nil {
		t.Fatalf("erlc: %v\n%s", err, out)
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		at := s.epmd()
		node := func(name string, args ...string) []string {
			erl := []string{"erl", "+S", "4", "-noinput", "-start_epmd", "false", "-name", name + "@127.0.0.1", "-setcookie", "cookie", "-pa", beams, "-run", "talk", "main"}
			return slices.Concat(at, erl, args)
		}
		port := freePort()
		s.serve(port, "env", node("b", "serve", strconv.Itoa(port))...)
		return string(s.run(nil, "env", node("a", "talk", strconv.Itoa(port), "4", "b@127.0.0.1")...))
	}})
}

// epmd starts what tells nodes of Erlang where others are: they would do so themselves, and
// leave it. It returns the environment of the nodes.
func (s *stage) epmd() []string {
	s.Helper()
	port := freePort()
	at := []string{"ERL_EPMD_PORT=" + strconv.Itoa(port), "ERL_EPMD_ADDRESS=127.0.0.1", "HOME=" + s.dir}
	s.serveIn(at, port, "epmd")
	return at
}

// RabbitMQ between Python's publisher and consumers.
func TestRabbitMQ(t *testing.T) {
	root := debroot.Need(t, "rabbitmq-server", "python3-pika")
	compare(t, scenario{root: root, lanes: true, bothOnly: true, play: func(s *stage) string {
		port, nodes := freePort(), freePort()
		dir := s.fresh("rabbit")
		at := append(s.epmd(), "RABBITMQ_NODENAME=r@127.0.0.1", "RABBITMQ_USE_LONGNAME=true", "RABBITMQ_MNESIA_BASE="+dir, "RABBITMQ_LOG_BASE="+dir,
			"RABBITMQ_PID_FILE="+dir+"/pid", "RABBITMQ_ENABLED_PLUGINS_FILE="+dir+"/plugins", "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT="+strconv.Itoa(port), "RABBITMQ_DIST_PORT="+strconv.Itoa(nodes))
		s.serve(port, "env", append(at, "sh", "-c", "exec /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")...)
		return string(s.run(nil, "python3", testdata(t, "rabbit.py"), strconv.Itoa(port), "4", "1500"))
	}})
}
