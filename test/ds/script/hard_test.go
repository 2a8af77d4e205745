package script_test

import (
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// What a program does to its descriptors and to itself takes connections back to TCP
// where it has to, with a reason, and no others. That nothing else differs is what the
// scripts of testdata/hard.script are for.
func TestHardCasesTakeBackWhatTheyMust(t *testing.T) {
	const (
		begin   = "script x\nopen\nwarm\n"
		closing = "script x\nb l=listen 4\na c=socket 4 cloexec\na connect c 4 $port\nb d=accept l\nwarm\n" // c is close-on-exec
		more    = "a write c 500\nb read d 500\nb write d 700\na read c 700\n"
	)
	library := ds.Library(t)
	for _, v := range []struct{ name, text, reason string }{ // no reason: a lane
		{"capset", begin + "a capset\n" + more, "privilege"},
		{"capset, a later connection", begin + "a capset\na close c\nb close d\na c2=socket 4\na connect c2 4 $port\nb d2=accept l\nb&7 pong d2 200 600\na ping c2 200 600\nb join 7\n", ""},
		{"sigio", begin + "a sigio c fcntl\n" + more, "option"},
		{"sigio by ioctl", begin + "a sigio c ioctl\n" + more, "option"},
		{"sigio before", "script x\nopen\na sigio c queued\nwarm\n" + more, "option"},
		{"closefrom", begin + "a closeall closefrom\na closeall closerange\na closeall raw\na closeall loop\na closeall cloexec\n" + more, ""},
		{"a child that closes all", begin + "a fork\nA closelow\nA exit 0\na reap\n" + more, ""},
		{"a program started in a child", closing + "b write d 300\na cgi closefrom c 300\n" + more, "stdio"},
		{"spawn with its copy", closing + "b write d 300\na prepare c 0\na prepared c 300 0\n" + more, "shared between processes"},
		{"spawn without it", closing + "a prepare c closed\na prepared c 300 own\n" + more, ""},
		{"spawn, a number of earlier actions", "script x\nb l=listen 4\na old=socket 4 cloexec\na prepare old 0\na prepared old 0 0\na close old\n" +
			"a c=socket 4 cloexec\na connect c 4 $port\nb d=accept l\nwarm\na prepare c closed\na prepared c 300 own\n" + more, ""},
		{"aio", begin + "a write c 500\nb read d 500\nb write d 700\na aioread c 700\na aiolist c 500\nb read d 500\n", "stdio"},
		{"io_uring", begin + "a ring\n" + more, "io_uring"},
		{"io_uring, its bytes", "script x\na ring\nopen\nwarm\na rsend c 500\nb read d 500\nb write d 700\na rrecv c 700\n", "io_uring"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
			s := outcome(t, stage, parse(t, v.text))[script.A]
			switch {
			case v.reason == "" && s.State != status.Lane:
				t.Errorf("%v, reason %q: want a lane", s.State, s.Reason)
			case v.reason != "" && (s.State != status.TCP || s.Reason.String() != v.reason):
				t.Errorf("%v, reason %q: want TCP, %s", s.State, s.Reason, v.reason)
			}
		})
	}
}

// daemon() leaves the process with a connection that is on a lane, and one that it
// makes later gets one. The process that is looked at is the one it becomes.
func TestDaemonKeepsLanes(t *testing.T) {
	library := ds.Library(t)
	const text = `script x
b l=listen 4
b fork
b close l
B daemon away
b reap
a c=socket 4
a connect c 4 $port
B d=accept l
B&7 pong d 200 600
a ping c 200 600
B join 7
B daemon
a write c 500
B read d 500
B write d 700
a read c 700
`
	stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
	want := play(t, script.Stage{Player: stage.Player}, parse(t, text))
	var client status.Socket
	stage.Before = func(pids map[script.End]int) { client = busiest(t, pids[script.A]) }
	if diff := script.Diff(want, play(t, stage, parse(t, text))); diff != "" {
		t.Errorf("TCP (-) and the library (+) differ:\n%s", diff)
	}
	if client.State != status.Lane || client.VELO.Sum()+client.RMA.Sum() < 100000 {
		t.Errorf("the client of a daemon is not on a lane: %+v", client)
	}
}
