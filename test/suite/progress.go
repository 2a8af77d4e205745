package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress says how far a run is: in front of each package's result, and on a terminal also in a
// last line that names the packages that run, and is overwritten each second.
type progress struct {
	start time.Time

	mu       sync.Mutex
	out      io.Writer
	width    int // of the terminal; 0 if out is none
	shown    bool
	done     int
	all      int // packages of this go test; 0 outside
	running  []string
	finished chan struct{}
}

func newProgress(out io.Writer, start time.Time) *progress {
	p := &progress{out: out, start: start}
	if f, ok := out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			p.width = int(size.Col)
		}
	}
	return p
}

// begin is called before go test runs so many packages.
func (p *progress) begin(packages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.all, p.running = 0, packages, nil
	if p.width == 0 {
		return
	}
	finished := make(chan struct{})
	p.finished = finished
	go func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-finished:
				tick.Stop()
				return
			case <-tick.C:
				p.mu.Lock()
				p.show()
				p.mu.Unlock()
			}
		}
	}()
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished != nil {
		close(p.finished)
		p.finished = nil
	}
	p.hide()
	p.all = 0
}

func (p *progress) starts(pkg string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, pkg)
}

func (p *progress) ends(pkg string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.running = slices.DeleteFunc(p.running, func(other string) bool { return other == pkg })
}

// place is "[12/57  1:23] ", or nothing outside of a go test.
func (p *progress) place() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placeLocked()
}

func (p *progress) placeLocked() string {
	if p.all == 0 {
		return ""
	}
	since := time.Since(p.start).Round(time.Second)
	return fmt.Sprintf("[%*d/%d %2d:%02d] ", len(fmt.Sprint(p.all)), p.done, p.all, int(since.Minutes()), int(since.Seconds())%60)
}

// print writes what stays.
func (p *progress) print(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	io.WriteString(p.out, text)
}

// show writes the last line, hide removes it.
func (p *progress) show() {
	if p.all == 0 {
		return
	}
	line := p.placeLocked() + strings.Join(p.running, " ")
	fmt.Fprintf(p.out, "\r\x1b[K%.*s", max(0, p.width-1), line)
	p.shown = true
}

func (p *progress) hide() {
	if p.shown {
		io.WriteString(p.out, "\r\x1b[K")
		p.shown = false
	}
}
