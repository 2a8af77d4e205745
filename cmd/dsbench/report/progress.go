package report

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// A Progress is the line that tells how far a command is. It is rewritten only
// when something was done: a clock that ticks would disturb what is measured.
type Progress struct {
	w       io.Writer // nil: shows nothing
	lines   bool      // w is no terminal: what is done is said in lines
	about   string    // what all of it is part of
	start   time.Time
	total   time.Duration // as planned
	planned time.Duration // of what is done
	what    string
}

// NewProgress shows progress of work that should take total, on w if that is
// a terminal. A nil *Progress shows nothing too.
func NewProgress(w io.Writer, total time.Duration) *Progress {
	p := &Progress{start: time.Now(), total: total}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			p.w = w
		}
	}
	return p
}

// NewLines is NewProgress that also tells of each step where w is no terminal, in a line.
func NewLines(w io.Writer, total time.Duration) *Progress {
	p := NewProgress(w, total)
	if p.w == nil {
		p.w, p.lines = w, true
	}
	return p
}

// About says what the steps to come are part of.
func (p *Progress) About(what string) {
	if p != nil {
		p.about = what + ": "
	}
}

// Doing says what is done from now on.
func (p *Progress) Doing(what string) {
	if p == nil || p.lines && p.about+what == p.what {
		return
	}
	p.what = p.about + what
	if p.lines {
		fmt.Fprintf(p.w, "dsbench: %s\n", p.what)
		return
	}
	p.show(time.Since(p.start))
}

// Done says that a part is done which was planned to take d.
func (p *Progress) Done(d time.Duration) {
	if p != nil {
		p.planned = min(p.planned+d, p.total)
		p.show(time.Since(p.start))
	}
}

// End takes the line away.
func (p *Progress) End() {
	if p != nil && p.w != nil && !p.lines {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) show(elapsed time.Duration) {
	if p.w != nil && !p.lines {
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(elapsed))
	}
}

// line extrapolates from how the plan held so far.
func (p *Progress) line(elapsed time.Duration) string {
	left := p.total - p.planned
	if p.planned > 0 {
		left = time.Duration(float64(left) * float64(elapsed) / float64(p.planned))
	}
	share := 100
	if p.total > 0 {
		share = int(100 * p.planned / p.total)
	}
	return fmt.Sprintf("%3d %%  %s  about %v left", share, p.what, left.Round(time.Second))
}
