package lane_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"exnet/test/ds/lane"
)

// An end of a recorded connection.
type end struct {
	memory   []byte // its file
	offered  string // target of its offer
	kinds    []uint64
	attach   []byte // what it sent
	hello    []byte
	sent     []byte // the bytes of its calls of send
	received uint64 // how many came out of its calls of recv
	over     bool   // it has closed
	in       inbound
}

// inbound is the reading end of a direction.
type inbound struct {
	tcp              []byte // given to the kernel and not read yet
	tcpRead          uint64
	slot, off        uint64 // the next slot, and what is consumed of it
	piece, left      uint64 // of the piece under way
	pieceEnd         uint64
	laneRead         uint64
	lane, due        bool // by lane; a SWITCH waits for
	switchAt         uint64
	switches         uint64
	ended, aborted   bool
	byWindow, bySlot uint64
}

// A scene is a file of vectors that is played.
type scene struct {
	*testing.T
	document
	ends  map[string]*end
	lane  uint64
	trace []string // tags as they are taken, with the reader
}

func (s *scene) peer(e *end) *end {
	if e == s.ends["a"] {
		return s.ends["b"]
	}
	return s.ends["a"]
}

// ring is the one that e writes.
func (s *scene) ring(e *end) ring {
	lanes, slots := get(s.head, e.memory, "lanes"), get(s.head, e.memory, "slots")
	from := 8192 + 256*lanes + 128*slots*s.lane
	at := uint64(len(e.memory)) - get(s.head, e.memory, "windows")*get(s.head, e.memory, "window")
	return ring{s.document, e.memory[from : from+128*slots], e.memory[at:]}
}

// word is one of e's control block.
func (s *scene) word(e *end, name string) uint64 {
	return get(s.control, e.memory[8192+256*s.lane:], name)
}

// read reads up to n bytes for e, by the rules of section 1.
func (s *scene) read(e *end, n int) (got []byte) {
	writer, in := s.peer(e), &e.in
	if e.memory == nil { // no lane yet
		return s.readTCP(in, n)
	}
	r := s.ring(writer)
	for len(got) < n {
		if !in.lane {
			if next := r.at(in.slot); !in.due && next.kind == control {
				s.take(e, next)
				continue
			}
			if in.due && in.tcpRead == in.switchAt {
				in.due, in.lane = false, true
				continue
			}
			limit := n - len(got)
			if in.due {
				limit = min(limit, int(in.switchAt-in.tcpRead))
			}
			more := s.readTCP(in, limit)
			if len(more) == 0 {
				break
			}
			got = append(got, more...)
			continue
		}
		if back := s.word(e, "go_back"); back != 0 && in.laneRead >= back-1 {
			if !s.skip(e, r) {
				break
			}
			continue
		}
		if in.left > 0 {
			k := min(in.left, uint64(n-len(got)))
			got = append(got, r.windows[in.piece:in.piece+k]...)
			in.piece, in.left, in.laneRead, in.byWindow = in.piece+k, in.left-k, in.laneRead+k, in.byWindow+k
			if in.left == 0 {
				in.slot++
			}
			continue
		}
		next := r.at(in.slot)
		switch {
		case next.kind == data && next.window:
			in.piece, in.left = next.words[0], next.words[1]
			in.pieceEnd += in.left
		case next.kind == data:
			part := next.bytes[in.off:]
			k := min(len(part), n-len(got))
			got = append(got, part[:k]...)
			in.off, in.laneRead, in.bySlot = in.off+uint64(k), in.laneRead+uint64(k), in.bySlot+uint64(k)
			if in.off == uint64(len(next.bytes)) {
				in.slot, in.off = in.slot+1, 0
			}
		case next.kind == control:
			s.take(e, next)
		case next.kind == hostile:
			s.Fatalf("slot %d is hostile", in.slot)
		}
		if next.kind == nothing || in.ended {
			break
		}
	}
	return got
}

func (s *scene) readTCP(in *inbound, n int) []byte {
	k := min(n, len(in.tcp))
	got := in.tcp[:k]
	in.tcp, in.tcpRead = in.tcp[k:], in.tcpRead+uint64(k)
	return got
}

// take takes a control message that is due.
func (s *scene) take(e *end, c slot) {
	in, name := &e.in, ""
	for n, tag := range s.tags {
		if tag == c.tag {
			name = n
		}
	}
	good := false
	switch name {
	case "SWITCH":
		in.switches++
		good = !in.lane && c.words[0] >= in.tcpRead && c.words[1] == 0 && s.word(e, "consent") >= in.switches
		in.due, in.switchAt = true, c.words[0]
	case "BACK":
		good = in.lane && c.words[0] == in.laneRead && c.words[1] == 0
		in.lane = false
	case "SHUTDOWN":
		how := uint64(1)
		if s.peer(e).over {
			how = 2
		}
		good = in.lane && c.words == [2]uint64{how, in.laneRead}
		in.ended = true
	case "ABORT":
		good = c.words == [2]uint64{}
		in.aborted = true
	}
	if !good {
		s.Fatalf("%s%v after %d bytes by TCP and %d by the lane, consent %d", name, c.words, in.tcpRead, in.laneRead, s.word(e, "consent"))
	}
	in.slot++
	s.trace = append(s.trace, name)
}

// skip goes behind the BACK that ends e's withdrawal, if it is there.
func (s *scene) skip(e *end, r ring) bool {
	in := &e.in
	pieceEnd := in.pieceEnd
	for k := in.slot; ; k++ {
		next := r.at(k)
		if k == in.slot && in.left > 0 { // its piece is open
			continue
		}
		switch next.kind {
		case nothing:
			return false
		case hostile:
			s.Fatalf("slot %d is hostile", k)
		case control:
			in.slot, in.off, in.left, in.pieceEnd = k, 0, 0, pieceEnd
			s.take(e, next)
			return true
		}
		if next.window {
			pieceEnd += next.words[1]
		}
	}
}

// credit checks what e has told its writer after a call that read. Control
// messages behind the last byte may have been taken or not.
func (s *scene) credit(e *end) {
	if e.memory == nil || s.word(e, "generation") == 0 {
		return
	}
	in := e.in
	told := s.word(e, "slots_taken")
	for more := in.slot; told > more && s.ring(s.peer(e)).at(more).kind == control; more++ {
		told--
	}
	if told != in.slot {
		s.Errorf("slots_taken is %d, but %d are read", s.word(e, "slots_taken"), in.slot)
	}
	if window := s.word(e, "window_taken"); window != in.pieceEnd-in.left {
		s.Errorf("window_taken is %d, but %d of the window is read", window, in.pieceEnd-in.left)
	}
}

// call checks a call against what the rules give.
func (s *scene) call(e *end, words []string) {
	_, rest, _ := strings.Cut(strings.Join(words, " "), " = ")
	outcome := strings.Fields(rest)
	given := lane.Unfold(s.T, outcome[1:])
	switch words[0] {
	case "send":
		e.sent = append(e.sent, given...)
	case "recv":
		want := s.peer(e).sent[e.received:]
		got := s.read(e, int(lane.Number(s.T, words[1])))
		if !bytes.Equal(got, given) || !bytes.HasPrefix(want, got) {
			s.Errorf("%v gives %d bytes by the rules: %.20x", words, len(got), got)
		}
		e.received += uint64(len(got))
		end := e.in.ended || s.peer(e).over && !e.in.aborted
		if outcome[0] == "0" && !end || outcome[0] == "-1" && end {
			s.Errorf("%v, but ended is %v and aborted %v", words, e.in.ended, e.in.aborted)
		}
		s.credit(e)
	case "close":
		e.over = true
		if s.word(e, "closed") != 1 || s.word(e, "generation") != 0 {
			s.Errorf("after close, closed is %d and generation %d", s.word(e, "closed"), s.word(e, "generation"))
		}
	case "shutdown":
		if s.word(e, "shut") != 1 {
			s.Error("after shutdown, shut is not set")
		}
	}
}

// meeting checks how the two ends have found each other.
func (s *scene) meeting(offerName string) {
	a, b := s.ends["a"], s.ends["b"]
	asks, answers := a, b
	if a.attach == nil {
		asks, answers = b, a
	}
	m := asks.attach
	field := func(name string) string {
		f := s.message[name]
		return fmt.Sprintf("%x", m[f.offset:f.offset+f.size])
	}
	name := "o-1-" + field("tuple.remote") + field("tuple.remote_port") + field("tuple.local") + field("tuple.local_port")
	if offerName != name {
		s.Errorf("ATTACH answers the offer %s, which is %s", name, offerName)
	}
	if target := fmt.Sprintf("p-1-0123456789abcdef:%d", get(s.message, m, "peer_ino")); target != answers.offered {
		s.Errorf("ATTACH is for %s, offered was %s", target, answers.offered)
	}
	if fmt.Sprint(asks.kinds, answers.kinds) != "[1 2] [1 3]" {
		s.Errorf("messages %v and %v, want HELLO, ATTACH and HELLO, ATTACH_OK", asks.kinds, answers.kinds)
	}
	s.lane = get(s.message, m, "lane")
	if s.lane%2 != 0 {
		s.Errorf("who connected picks lane %d", s.lane)
	}
	for _, e := range s.ends {
		for _, name := range []string{"lanes", "slots", "windows", "window", "size"} {
			if said, is := get(s.message, e.hello, name), get(s.head, e.memory, name); said != is {
				s.Errorf("HELLO says %d %s, the head %d", said, name, is)
			}
		}
		size := fileSize(get(s.head, e.memory, "lanes"), get(s.head, e.memory, "slots"), get(s.head, e.memory, "windows"), get(s.head, e.memory, "window"))
		if get(s.head, e.memory, "size") != size || string(e.memory[:8]) != "EXDSLAN3" || get(s.head, e.memory, "version") != 3 {
			s.Errorf("the head begins with %x", e.memory[:32])
		}
		if posted := get(s.head, e.memory, "posted"); posted != uint64(len(e.kinds)) {
			s.Errorf("posted is %d after %d messages", posted, len(e.kinds))
		}
		if g := s.word(e, "generation"); g != get(s.message, m, "generation") {
			s.Errorf("generation %d is not that of ATTACH", g)
		}
	}
}

// Recorded connections, played by who reads ext-ds.md only: each call gives the
// bytes that the rules give, and all words are as they say.
func TestScenes(t *testing.T) {
	taken := map[string]string{
		"forward":  "SWITCH SWITCH SHUTDOWN BACK",
		"close":    "SWITCH SHUTDOWN",
		"abort":    "SWITCH ABORT",
		"leave":    "SWITCH BACK SWITCH SHUTDOWN",
		"withdraw": "SWITCH BACK SWITCH SHUTDOWN",
	}
	for _, name := range scenes {
		t.Run(name, func(t *testing.T) {
			s := &scene{T: t, document: readDocument(t), ends: map[string]*end{"a": {}, "b": {}}}
			s.play(lane.Lines(t, filepath.Join(vectors, name+".txt")))
			if got := strings.Join(s.trace, " "); got != taken[name] {
				t.Errorf("taken were %s, want %s", got, taken[name])
			}
			for _, e := range s.ends {
				if in := s.peer(e).in; in.laneRead+in.tcpRead != uint64(len(e.sent)) && name != "abort" {
					t.Errorf("%d bytes sent; %d read by TCP, %d by the lane", len(e.sent), in.tcpRead, in.laneRead)
				}
			}
			if in := s.ends["b"].in; name == "forward" && (in.byWindow != 18481 || in.bySlot != 1072) {
				t.Errorf("%d bytes by the window and %d by slots", in.byWindow, in.bySlot)
			}
		})
	}
}

func (s *scene) play(lines [][]string) {
	offer := ""
	for i, words := range lines {
		if words[0] == "board" {
			// 4 bytes for each port, connections made, then accepted.
			if strings.Join(words, " ") != "board 49156 0 16384" {
				s.Errorf("line %d: %v", i+1, words)
			}
			s.meeting(offer)
			continue
		}
		e, rest := s.ends[words[1]], words[2:]
		switch words[0] {
		case "offer":
			offer, e.offered = rest[0], rest[1]
		case "message":
			m := lane.Unfold(s.T, rest)
			if len(m) != 256 || get(s.message, m, "version") != 3 {
				s.Errorf("line %d: a message of %d bytes", i+1, len(m))
			}
			kind := get(s.message, m, "kind")
			e.kinds = append(e.kinds, kind)
			switch kind {
			case 1:
				e.hello = m
			case 2:
				e.attach = m
			}
		case "tcp":
			in := &s.peer(e).in
			in.tcp = append(in.tcp, lane.Unfold(s.T, rest)...)
		case "memory":
			if e.memory == nil {
				e.memory = make([]byte, get(s.message, e.hello, "size"))
			}
			copy(e.memory[lane.Number(s.T, rest[0]):], lane.Unfold(s.T, rest[1:]))
		case "call":
			s.call(e, rest)
		default:
			s.Fatalf("line %d: %v", i+1, words)
		}
		if s.Failed() {
			s.Fatalf("in line %d: %.100s", i+1, strings.Join(words, " "))
		}
	}
}
