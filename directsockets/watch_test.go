package directsockets

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"exnet/directsockets/internal/lane"
)

// asleepIn starts a call that reads one byte, and waits until it sleeps on the lane, for the
// watcher to wake it.
func asleepIn(t *testing.T, c *Conn) (result chan byte) {
	t.Helper()
	c.ch.roost.taken.Store(1<<perches - 1)
	result = make(chan byte, 1)
	go func() {
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil {
			t.Error(err)
		}
		result <- b[0]
	}()
	awaitNap(t, c)
	return result
}

func awaitNap(t *testing.T, c *Conn) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); c.wish.state.Load() != wishAsleep; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the reader does not sleep")
		}
	}
}

// Readers on quiet lanes are not woken, and the watcher does not look at them, however many there
// are.
func TestQuietLanesCostNothing(t *testing.T) {
	const quiet, rounds = 20, 2000
	dir := fabric(t)
	var sleepers []chan byte
	var readers, writers []*Conn
	for range quiet {
		a, b := pipe(t, Options{Fabric: dir})
		warm(t, a, b)
		sleepers, readers, writers = append(sleepers, asleepIn(t, a)), append(readers, a), append(writers, b)
	}
	a, b := pipe(t, Options{Fabric: dir})
	warm(t, a, b)
	if a.ch != readers[0].ch && b.ch != readers[0].ch {
		t.Fatal("the connections do not share a channel")
	}
	for range rounds {
		write(t, a, "ping")
		read(t, b, "ping")
		write(t, b, "pong")
		read(t, a, "pong")
	}
	for i, c := range readers {
		if c.wish.state.Load() != wishAsleep {
			t.Errorf("connection %d was woken for nothing", i)
		}
	}
	a.ch.mu.Lock()
	if n := len(a.ch.waiting); n > 0 {
		t.Errorf("the watcher looks at %d", n)
	}
	a.ch.mu.Unlock()
	for i, w := range writers {
		write(t, w, string(rune('a'+i)))
		if got := <-sleepers[i]; got != byte('a'+i) {
			t.Errorf("connection %d: %q", i, got)
		}
	}
	for _, c := range readers {
		if c.wish.asks > 100 { // those of warm, and one
			t.Errorf("%d requests for a mark", c.wish.asks)
		}
	}
}

// Marks that are false, or cancel each other, cost no wake-up.
func TestStrangeMarks(t *testing.T) {
	a, b := upgraded(t)
	got := asleepIn(t, a)
	number, peer := a.lane, b.ch // whose file has the marks for a
	for what, strange := range map[string]func(){
		"a mark of nothing":         func() { peer.own.Mark(number, lane.Ask(ourWaiter, 1)) },
		"two that cancel":           func() { peer.own.Mark(number, lane.Ask(ourWaiter, 1)); peer.own.Mark(number, lane.Ask(ourWaiter, 1)) },
		"lanes that nobody has":     func() { peer.own.Mark(number^2, lane.Ask(ourWaiter, 1)); peer.own.Mark(4095, lane.Ask(ourWaiter, 1)) },
		"one for the other waiter":  func() { peer.own.Mark(number, lane.Ask(nightWaiter, 1)) },
		"all lanes, and then again": func() { markAll(peer); markAll(peer) },
	} {
		strange()
		ringBell(peer.bells[ourWaiter])
		time.Sleep(5 * time.Millisecond) // it may sleep again by then, or not
		write(t, b, "x")
		select {
		case <-got:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: not woken", what)
		}
		got = asleepIn(t, a)
	}
	// This mark is true, and is cancelled before the watcher looks.
	a.ch.mu.Lock()
	peer.own.Mark(number, lane.Ask(ourWaiter, 1))
	write(t, b, "x")
	a.ch.mu.Unlock()
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Fatal("a true mark that was cancelled: not woken")
	}
}

func markAll(ch *channel) {
	for number := range uint32(4096) {
		ch.own.Mark(number, lane.Ask(ourWaiter, 1))
	}
}

// A reader that takes little at a time, and takes long for it, rings for credit that is not worth
// waking the writer if it does not know slots_due. That is no offence.
func TestSmallReadsOfFullLane(t *testing.T) {
	const many = ringsLeaving + 4*ringsOfLane
	for name, ring := range map[string]func(b *Conn){
		"when due": func(*Conn) {},
		"for each": func(b *Conn) { b.ch.ring(b, &b.peer.TxWaiters) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := upgraded(t)
			go pour(a)
			sleeps := sip(t, b, many, func() { ring(b) })
			channelLives(t, a, b)
			if name == "when due" && sleeps > many/8 {
				t.Errorf("the watcher slept %d times for %d reads", sleeps, many)
			}
			t.Log(sleeps, "sleeps")
		})
	}
}

// The reader does not ring for what it takes from TCP, sent before the lane.
func TestSmallReadsBeforeTheLane(t *testing.T) {
	was := env.stuck
	env.stuck = 0
	defer func() { env.stuck = was }()
	const many = ringsLeaving + 2*ringsOfLane
	a, b := pipe(t, Options{Fabric: fabric(t)})
	write(t, a, strings.Repeat("x", 2*many))
	for !a.Status().WritesLane {
		write(t, a, "x")
		sip(t, b, 1, func() {})
	}
	ended := make(chan struct{})
	go func() {
		pour(a)
		close(ended)
	}()
	sip(t, b, many, func() {})
	channelLives(t, a, b)
	b.Close()
	<-ended // it looks at env.stuck
}

func pour(c *Conn) {
	for err := error(nil); err == nil; {
		_, err = c.Write(make([]byte, 100<<10))
	}
}

// sip lets b read a byte at a time and then call then. It does so each time the watcher of b's peer
// sleeps, if it does. It returns how often that watcher has gone to sleep.
func sip(t *testing.T, b *Conn, many int, then func()) (sleeps int) {
	t.Helper()
	var asleep uint64 // the watcher's epoch, when it slept last
	for range many {
		for end := time.Now().Add(time.Millisecond / 4); b.engaged(); runtime.Gosched() {
			if epoch := b.ch.peer.Asleep(ourWaiter); epoch != 0 && epoch != asleep {
				asleep = epoch
				sleeps++
				break
			}
			if time.Now().After(end) { // it is awake as long as the writer writes
				break
			}
		}
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		then()
	}
	return sleeps
}

func channelLives(t *testing.T, a, b *Conn) {
	t.Helper()
	if a.ch.live.Load() != alive || b.ch.live.Load() != alive {
		t.Error("the channel has ended")
	}
}
