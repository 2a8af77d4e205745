package napi

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// attrOf returns the policy and the slice of the calling thread; before Linux 6.12 the slice is 0.
func attrOf(t *testing.T) *unix.SchedAttr {
	t.Helper()
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return attr
}

// ShortSlice sets the shortest slice once, where slices exist, and undo restores the former one.
func TestShortSlice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was := attrOf(t)
	undo := ShortSlice()
	want := min(was.Runtime, uint64(shortest))
	if got := attrOf(t); got.Runtime != want || got.Policy != was.Policy || got.Nice != was.Nice {
		t.Errorf("ShortSlice made %+v of %+v", got, was)
	}
	ShortSlice()() // nothing to do, and nothing to undo
	if got := attrOf(t).Runtime; got != want {
		t.Errorf("a second ShortSlice made a slice of %d ns of %d", got, want)
	}
	undo()
	if got := attrOf(t); *got != *was {
		t.Errorf("undo made %+v, it was %+v", got, was)
	}
}

// A thread with a scheduling policy of its own is left alone.
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
