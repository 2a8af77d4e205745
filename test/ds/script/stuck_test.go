package script_test

import (
	"strings"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// Both ends write more small messages than a lane takes, and only then read: TCP's buffers
// hold them. A program may be both ends itself.
func TestWritesBeforeReads(t *testing.T) {
	library := ds.Library(t)
	many := func(step string) string { return strings.Repeat(step+"\n", 200) }
	for name, text := range map[string]string{
		"two processes": "open\nwarm\n" +
			many("a write c 20") + many("b write d 20") +
			"b recv d 4000 waitall\na recv c 4000 waitall\n" +
			many("a write c 20") + "b recv d 4000 waitall\nb recv d 1 dontwait\na close c\nb read d 1\n",
		"one process": "a l=listen $F\na c=socket $F\na connect c $F $port\na d=accept l\na set c nodelay 1\na set d nodelay 1\n" +
			"a&7 pong d 40 600\na ping c 40 600\na join 7\n" +
			many("a write c 20") + many("a write d 20") + "a recv d 4000 waitall\na recv c 4000 waitall\na fionread d\n",
		"much at a time": "open\nwarm\na write c 700000\na write c 700000\nb write d 600000\nb recv d 1400000 waitall\na recv c 600000 waitall\n",
		"who has not looked": "open\n" + strings.Repeat("b write d 20\na recv c 20 waitall\n", 10) +
			many("a write c 20") + many("b write d 20") + "b recv d 4000 waitall\na recv c 4000 waitall\n",
		"a file": "open\nwarm\na sendfile c 0 100000\n" + many("a sendfile c 0 121") + "b recv d 124200 waitall\n",
	} {
		t.Run(name, func(t *testing.T) {
			likeTCP(t, parse(t, "script stuck\n"+text), library, both, "EXN_DS_STUCK_MS=30")
		})
	}
}

// Who waits for room on a lane from which nobody reads learns after a while that there is some,
// however it waits. Its bytes arrive in order, and after a second the lane is used again.
func TestRoomWhereNobodyReads(t *testing.T) {
	library := ds.Library(t)
	for name, waits := range map[string]struct{ before, wait string }{
		"nothing":         {"", "b poll 600 d pri\na send c 20 dontwait"},
		"poll":            {"", "a poll 4000 c out"},
		"poll of a copy":  {"a x=dup c\n", "a poll 4000 x in,out"},
		"select":          {"", "a select 4000 c w"},
		"epoll":           {"a e=epoll\na ctl e add c out 5\n", "a wait e 4000"},
		"edge":            {"a e=epoll\na ctl e add c in,out,et 5\na wait e 0\n", "a wait e 4000"},
		"one shot":        {"a e=epoll\na ctl e add c out,oneshot 5\na wait e 0\n", "a ctl e mod c out,oneshot 5\na wait e 4000"},
		"a set in a set":  {"a e=epoll\na f=epoll\na ctl e add c out 5\na ctl f add e in 6\n", "a wait f 4000\na wait e 0"},
		"a set in a poll": {"a e=epoll\na ctl e add c out 5\n", "a poll 4000 e in\na wait e 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, "script room\nopen\nwarm\n"+waits.before+"a fill c 20\n"+waits.wait+
				"\nb drain d $fill\nb recv d 100 dontwait\nb poll 1100 d pri\nb&1 pong d 300 600\na ping c 300 600\nb join 1\n")
			var a status.Socket
			log := play(t, script.Stage{
				Player: player(t),
				// Longer than fill tries.
				Env:    ds.Preload(library, ds.Fabric(t), append(early, "EXN_DS_STUCK_MS=400")...),
				Before: func(pids map[script.End]int) { a = busiest(t, pids[script.A]) },
			}, s)
			for _, e := range log {
				for step, want := range map[string]string{" 4000": "1 ", "wait e 0": "1 ", "send c": "20", "a fill": "EAGAIN", "drain": "all", "ping": "done"} {
					if strings.Contains(e.Step, step) && !strings.HasPrefix(e.Outcome, want) {
						t.Errorf("%s: %s", e.Step, e.Outcome)
					}
				}
			}
			if a.VELO.Sum()+a.RMA.Sum() < 2*300*600 {
				t.Errorf("little by the lane afterwards: %+v", a)
			}
			if t.Failed() {
				t.Log(log)
			}
		})
	}
}
