package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// What a client begins each connection with: the mode as a letter, and what is to come.
type hello struct {
	Mode, Check  uint32
	Size, Rounds uint64 // Rounds: of a connection for messages, 0: to its end; of a stream its memory
}

// An answer ends a stream, or tells of the server. CPU is its time in ns.
type answer struct{ Bytes, Wrong, CPU uint64 }

// The modes of a connection.
const (
	oneStream  = 's'
	someStream = 'n' // one of several
	echoes     = 'p'
	crowded    = 'e' // messages of one of many
	oneEcho    = 'c'
	usage      = 'u' // only here: how much CPU time has the server used?
)

var errWrong = errors.New("wrong data")

func put(c io.Writer, v any) error { return binary.Write(c, binary.NativeEndian, v) }

func get(c io.Reader, v any) error { return binary.Read(c, binary.NativeEndian, v) }

// open makes a connection of a mode.
func (p *pump) open(mode uint32) (net.Conn, error) {
	c, err := p.dial()
	if err != nil {
		return nil, err
	}
	h := hello{Mode: mode, Size: uint64(p.size), Rounds: uint64(p.memory)}
	if p.check {
		h.Check = 1
	}
	if mode == oneEcho {
		h.Rounds = uint64(p.rounds)
	}
	if err := put(c, h); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// period is the length of what streams carry, over and over. It is a prime, so that
// what is lost shifts it.
const period = 131071

// fits says that writes may have a size, of a stream that goes through so much
// memory; 0: none of its own.
func fits[T int | uint64](size, memory T) bool {
	if memory == 0 {
		return 1 <= size && size <= largest
	}
	return 1 <= size && size <= memory && memory <= room && memory%size == 0
}

// pattern is that, and a largest write more to begin anywhere in it.
var pattern = patterned(period + largest)

// patterned is as much of it.
func patterned(n int) []byte {
	b := make([]byte, min(period, n), n)
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b { // xorshift64
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
	for len(b) < cap(b) {
		b = append(b, b[:min(period, cap(b)-len(b))]...)
	}
	return b
}

// differs: these are not the bytes of a stream, or of its memory, from byte at on.
// Unless all are to be compared, their two ends are.
func differs(b []byte, at uint64, all bool) bool {
	const ends = 16
	wrong := func(b []byte, at uint64) bool { return !bytes.Equal(b, pattern[at%period:][:len(b)]) }
	if last := len(b) - ends; !all && last > ends {
		return wrong(b[:ends], at) || wrong(b[last:], at+uint64(last))
	}
	for ; len(b) > period; b, at = b[period:], at+period {
		if wrong(b[:period], at) {
			return true
		}
	}
	return wrong(b, at)
}

// serve answers clients until it is killed.
func (p *pump) serve() error {
	l, err := p.listen()
	if err != nil {
		return err
	}
	fmt.Println("ready", l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var h hello
			if get(c, &h) != nil {
				return
			}
			memory := h.Rounds
			if h.Mode != oneStream && h.Mode != someStream {
				memory = 0
			}
			if fits(h.Size, memory) {
				answerTo(c, h)
			}
		}()
	}
}

// answerTo serves a connection; what goes wrong, its client sees.
func answerTo(c net.Conn, h hello) {
	switch h.Mode {
	case oneStream, someStream:
		swallow(c, h)
	case usage:
		put(c, answer{CPU: uint64(used())})
	case oneEcho, echoes, crowded:
		b := make([]byte, h.Size)
		for k := uint64(0); h.Rounds == 0 || k < h.Rounds; k++ {
			if echo(c, b) != nil {
				break
			}
		}
	}
}

func echo(c net.Conn, b []byte) error {
	_, err := io.ReadFull(c, b)
	if err == nil {
		_, err = c.Write(b)
	}
	return err
}

// swallow reads a stream, and answers at its end how it was.
func swallow(c net.Conn, h hello) {
	memory, size := h.Rounds, h.Size
	if memory == 0 {
		size = max(chunk, size)
	}
	b := make([]byte, max(memory, size))
	var a answer
	before, cold := used(), memory > 0
	for {
		at, on := uint64(0), a.Bytes
		if memory > 0 { // writes are read as they were written
			at = a.Bytes % memory
			on = at
		}
		n, err := c.Read(b[at:][:size-at%size])
		if n > 0 && differs(b[at:][:n], on, h.Check != 0) {
			a.Wrong++
		}
		a.Bytes += uint64(n)
		if cold && a.Bytes >= warm {
			before, cold = used(), false
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	a.CPU = uint64(used() - before)
	put(c, a)
}

// serverUsed asks for the server's CPU time.
func (p *pump) serverUsed() (ns uint64, err error) {
	c, err := p.open(usage)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	var a answer
	err = get(c, &a)
	return a.CPU, err
}
