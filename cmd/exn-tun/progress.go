package main

import (
	"fmt"
	"io"
)

// A progress says what is going on: on a terminal in one line that changes, else in
// lines.
type progress struct {
	w        io.Writer
	terminal bool
	open     bool // the line has not ended
}

func newProgress(w io.Writer) *progress { return &progress{w: w, terminal: isTerminal(w)} }

func (p *progress) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !p.terminal {
		fmt.Fprintf(p.w, "exn-tun: %s\n", text)
		return
	}
	p.open = true
	fmt.Fprintf(p.w, "\r\x1b[Kexn-tun: %s", text)
}

// end takes the line away.
func (p *progress) end() {
	if p.open {
		p.open = false
		io.WriteString(p.w, "\r\x1b[K")
	}
}
