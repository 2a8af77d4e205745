package shm

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	membarrierPrivateExpedited         = 1 << 3 // MEMBARRIER_CMD_PRIVATE_EXPEDITED, Linux 4.14
	membarrierRegisterPrivateExpedited = 1 << 4
)

var haveMembarrier = func() bool {
	_, _, e := unix.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return e == 0
}()

// membarrier makes every running thread of this process pass a full memory
// barrier before it returns.
func membarrier() {
	if haveMembarrier {
		if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0); e == 0 {
			return
		}
	}
	// If a sandbox forbids the call: store buffers drain within microseconds by themselves, so
	// a millisecond is ample.
	time.Sleep(time.Millisecond)
}
