package napi

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// attrOf is the policy and the slice of the calling thread, 0 before Linux 6.12.
func attrOf(t *testing.T) *unix.SchedAttr {
	t.Helper()
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr
}

// ShortSlice gives the shortest slice where there are any, once, and undo gives back
// the former.
func TestShortSlice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was := attrOf(t)
	undo := ShortSlice()
	want := min(was.Runtime, uint64(shortest))
	if got := attrOf(t); got.Runtime != want || got.Policy != was.Policy || got.Nice != was.Nice {
		t.Errorf("ShortSlice made %+v of %+v", got, was)
	}
	ShortSlice()() // there is nothing to do, nor to undo
	if got := attrOf(t).Runtime; got != want {
		t.Errorf("a second ShortSlice made a slice of %d ns of %d", got, want)
	}
	undo()
	if got := attrOf(t); *got != *was {
		t.Errorf("undo made %+v, it was %+v", got, was)
	}
}

// A thread whose policy somebody has chosen is left alone.
func TestShortSliceOfOthers(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was := *attrOf(t)
	batch := was
	batch.Policy = unix.SCHED_BATCH
	if err := unix.SchedSetAttr(0, &batch, 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetAttr(0, &was, 0); err != nil {
			t.Error(err)
		}
	}()
	chosen := attrOf(t)
	undo := ShortSlice()
	defer undo()
	if got := attrOf(t); *got != *chosen {
		t.Errorf("ShortSlice made %+v of %+v", got, chosen)
	}
}
