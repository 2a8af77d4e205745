package directsockets

import (
	"os"
	"testing"

	"exnet/directsockets/status"
)

// refused plays ping-pong until the connection has given up, and says why.
func refused(t *testing.T, a, b *Conn) status.Reason {
	t.Helper()
	for a.State() != status.TCP && b.State() != status.TCP {
		write(t, a, "x")
		read(t, b, "x")
		write(t, b, "x")
		read(t, a, "x")
		if a.State() == status.Lane && b.State() == status.Lane {
			t.Fatal("it has a lane")
		}
	}
	reason := a.Status().Reason
	if a.State() != status.TCP || reason == reasonRefused {
		reason = b.Status().Reason
	}
	write(t, a, "goes on")
	read(t, b, "goes on")
	return reason
}

func TestNoLaneLeft(t *testing.T) {
	was := env.geometry
	defer func() { env.geometry = was }()
	env.geometry.Lanes = 2
	o := Options{Fabric: fabric(t)}
	a, b := pipe(t, o)
	warm(t, a, b)
	// The lanes of a process with itself are all those of two channels' halves.
	for range 4 {
		c, d := pipe(t, o)
		for !(c.engaged() && d.engaged()) && c.State() != status.TCP && d.State() != status.TCP {
			write(t, c, "x")
			read(t, d, "x")
			write(t, d, "x")
			read(t, c, "x")
		}
		if c.engaged() {
			continue
		}
		if got := refused(t, c, d); got != reasonLanes {
			t.Errorf("reason %v", got)
		}
		a.Close()
		b.Close()
		e, f := pipe(t, o) // on the lane that is free again
		warm(t, e, f)
		return
	}
	t.Error("more connections than lanes")
}

func TestNoMemoryLeft(t *testing.T) {
	budget.take(0) // so that it knows its limit
	budget.mu.Lock()
	was := budget.most
	budget.most = budget.used + env.geometry.Touched() - 1
	budget.mu.Unlock()
	defer func() {
		budget.mu.Lock()
		budget.most = was
		budget.mu.Unlock()
	}()
	a, b := pipe(t, Options{Fabric: fabric(t)})
	if got := refused(t, a, b); got != reasonMemory {
		t.Errorf("reason %v", got)
	}
}

// A fabric directory that somebody removes is made anew; who has a lane keeps it.
func TestDirectoryVanishes(t *testing.T) {
	o := Options{Fabric: fabric(t)}
	a, b := pipe(t, o)
	warm(t, a, b)
	if err := os.RemoveAll(o.Fabric); err != nil {
		t.Fatal(err)
	}
	write(t, a, "still there")
	read(t, b, "still there")
	c, d := pipe(t, o)
	warm(t, c, d)
}
