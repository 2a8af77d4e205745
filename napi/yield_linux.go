package napi

import (
	"syscall"

	"exnet/internal/late"
)

// OSYield lets other threads and processes run: sched_yield(2). It is the yield for a loop that has
// an OS thread of its own. runtime.Gosched does not help there: it yields only to goroutines, and
// the other program would still wait for our CPU.
//
// The call is raw, without telling the Go scheduler, because it does not block: it returns when the
// kernel runs this thread again.
func OSYield() {
	late.Yield()
	syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
}
