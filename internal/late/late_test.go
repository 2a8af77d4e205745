package late_test

import (
	"testing"
	"time"

	"exnet/internal/late"
)

// A build that is late takes its time, and one that is not is done long before: of many,
// so that it may lose the CPU now and then.
func TestLate(t *testing.T) {
	const times = 200
	begun := time.Now()
	for range times {
		late.Wake()
	}
	if took := time.Since(begun); late.Slow && took < times*400*time.Microsecond {
		t.Errorf("%d wake-ups that are late took %v", times, took)
	}
	if !late.Slow && testing.AllocsPerRun(100, func() { late.Wake(); late.Yield() }) != 0 {
		t.Error("allocates")
	}
}
