package dissect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
)

// geometry is that of a channel with one connection, with the default slots and window.
var geometry = lane.Geometry{Lanes: 2, Slots: 64, Windows: 2, Window: 1 << 20}

const (
	veloMax = 480       // the default
	largest = 512 << 10 // fits into a window
	waiter  = 0
)

// errOver means that the other side has ended, or that this side was stopped.
var errOver = errors.New("stopped")

// A side is one end of the connection: it writes one lane and reads the other.
type side struct {
	config    *Config
	over      *atomic.Bool
	own, peer *lane.Memory
	w         lane.Writer
	r         lane.Reader
	mine      *lane.Control // in our memory
	theirs    *lane.Control
	bell      int // our doorbell
	rings     int // the other side's doorbell
	rung      uint64

	buf    []byte
	stamps []int64 // of the milestones that this side passes; see Config.index
	base   int     // for the current direction and round trip
	wanted milestone
	begins []int64 // lead's: of timed round trips
	ends   []int64
}

// makeSides makes both sides. Each has a mapping of its own of the other's memory.
func makeSides(c *Config, over *atomic.Bool) (s [2]*side, err error) {
	var fds [2]int
	for i := range s {
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return s, fmt.Errorf("create an eventfd: %w", err)
		}
		s[i] = &side{config: c, over: over, bell: bell, buf: make([]byte, c.Size), stamps: make([]int64, c.index(c.Rounds, true, none))}
		defer func() {
			if err != nil {
				s[i].close()
			}
		}()
		if s[i].own, fds[i], err = lane.New(geometry, false); err != nil {
			return s, err
		}
		defer unix.Close(fds[i])
	}
	for i := range s {
		if s[i].peer, err = lane.MapPeer(fds[1-i], geometry, geometry.Size(), false); err != nil {
			return s, err
		}
		s[i].mine, s[i].theirs, s[i].rings = s[i].own.Control(0), s[i].peer.Control(0), s[1-i].bell
	}
	for i := range s {
		s[i].w = lane.NewWriter(lane.NewPool(s[i].own, s[i].peer, geometry.Window, func(uint64, bool) bool { return true }), 0)
		s[i].r = lane.NewReader(s[i].own, s[i].peer, 0)
	}
	s[0].begins, s[0].ends = make([]int64, c.Rounds), make([]int64, c.Rounds)
	return s, nil
}

func (s *side) close() {
	s.own.Unmap()
	s.peer.Unmap()
	unix.Close(s.bell)
}

// one is what is written to an eventfd.
var one = [8]byte{1}

// wake ends the side's sleep.
func (s *side) wake() { unix.Write(s.bell, one[:]) }

// pass takes a stamp at a milestone, if this round trip has one there.
func (s *side) pass(m milestone) {
	if m != posted { // posted is delayed in send, before the message
		s.drag(m)
	}
	switch s.wanted {
	case m:
		s.stamps[s.base] = now()
	case every:
		s.stamps[s.base+int(m)] = now()
	}
}

// drag delays a milestone, for tests.
func (s *side) drag(m milestone) {
	if s.config.slow == m {
		for end := now() + int64(s.config.slowness); now() < end; {
		}
	}
}

// send does what a call of write does.
func (s *side) send() error {
	s.drag(posted)
	for b := s.buf; len(b) > 0; {
		n := s.w.Write(b, veloMax)
		if b = b[n:]; n == 0 && s.over.Load() {
			return errOver
		}
	}
	s.pass(posted)
	s.ring(rung, &s.theirs.RxWaiters)
	return nil
}

// ring rings the other side after a post or a credit, if it sleeps. It does what channel.ring does,
// except for marks, which one connection does not need.
func (s *side) ring(m milestone, mask *lane.Word) {
	if mask.Load() == 0 {
		return
	}
	if e := s.peer.Asleep(waiter); e != 0 && e != s.rung {
		if m != nothing {
			s.pass(m)
		}
		unix.Write(s.rings, one[:])
		s.rung = e
	}
}

// receive does what a call of read does.
func (s *side) receive() error {
	if s.config.Asleep {
		s.sleep()
		s.pass(awake)
	}
	for looks := 1; !s.r.Posted(); looks++ {
		if looks%1024 == 0 && s.over.Load() {
			return errOver
		}
	}
	s.pass(seen)
	for got := 0; ; {
		n, hostile := s.r.Read(s.buf[got:])
		if got += n; hostile {
			return errors.New("the lane makes no sense")
		}
		if got == len(s.buf) {
			break
		}
		s.r.Give()
		if n == 0 && s.over.Load() {
			return errOver
		}
	}
	s.pass(copied)
	s.r.Give()
	s.ring(nothing, &s.theirs.TxWaiters)
	s.pass(returned)
	return nil
}

// sleep sleeps until something is posted. It arms again before each check: a ring may be the late
// one of a message that was seen without it, and nobody rings twice for one epoch.
func (s *side) sleep() {
	s.mine.RxWaiters.Store(1 << waiter)
	for {
		s.own.Arm(waiter)
		if s.r.Posted() || s.over.Load() {
			break
		}
		var count [8]byte
		unix.Read(s.bell, count[:]) // if it is interrupted, the loop checks again
	}
	s.own.Disarm(waiter)
	s.mine.RxWaiters.Store(0)
}

// want sets the milestone that gets a stamp in a direction of a round trip, if this side passes it:
// what it writes, or what it reads.
func (s *side) want(i int, forth bool, way []milestone) {
	s.wanted, s.base = nothing, s.config.index(i, forth, none)
	switch place := s.config.stamp(i, len(way)); {
	case place < 0:
	case s.config.Asleep:
		s.wanted = every
	case (place < len(way)/2) == forth:
		s.wanted = way[place]
	}
}

// lead starts the round trips.
func (s *side) lead() error {
	way := s.config.way()
	message, number := make([]byte, len(s.buf)), [8]byte{}
	for i := range s.config.Rounds {
		if s.config.Pause > 0 {
			rest(s.config.Pause)
		}
		// The messages of a block that is timed as a whole are all the same.
		apart := s.config.Asleep || s.config.stamp(i, len(way)) >= 0
		if apart || i%block == 0 {
			binary.LittleEndian.PutUint64(number[:], uint64(i))
			copy(s.buf, number[:])
			copy(message, s.buf)
		}
		s.want(i, true, way)
		if s.timed(i, 0, len(way)) {
			s.begins[i] = now()
		}
		if err := s.send(); err != nil {
			return err
		}
		s.want(i, false, way)
		if err := s.receive(); err != nil {
			return err
		}
		if s.timed(i, block-1, len(way)) {
			s.ends[i] = now()
		}
		if (apart || i%block == block-1) && !bytes.Equal(s.buf, message) {
			return fmt.Errorf("wrong data: message %d came back as another", i)
		}
	}
	return nil
}

// timed reports whether lead reads the clock at the beginning of a round trip, or at its end. Of
// round trips without a stamp in between, that is at the first and the last of a block.
func (s *side) timed(i, at, places int) bool {
	return s.config.Asleep || s.config.stamp(i, places) >= 0 && at == 0 || i%block == at
}

// follow answers the messages.
func (s *side) follow() error {
	way := s.config.way()
	for i := range s.config.Rounds {
		s.want(i, true, way)
		if err := s.receive(); err != nil {
			return err
		}
		s.want(i, false, way)
		if err := s.send(); err != nil {
			return err
		}
	}
	return nil
}

// rest is exact, while Go's timers wait for whole milliseconds.
func rest(d time.Duration) {
	for left := unix.NsecToTimespec(int64(d)); unix.Nanosleep(&left, &left) == unix.EINTR; {
	}
}
