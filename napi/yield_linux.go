package napi

import "syscall"

// OSYield lets other threads and processes run: sched_yield(2). It is the yield of
// a loop that has an OS thread of its own. runtime.Gosched would not do: it yields
// to goroutines only, and the program we wait for keeps waiting for our CPU.
//
// The call is raw, without telling the Go scheduler: it does not block, it returns
// when the kernel runs this thread again.
func OSYield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
