package traffic

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls of which Go's scheduler knows nothing, as those of a program in C. It waits
// for them to collect garbage: none blocks for longer than lookAgain.

func write(fd int, b []byte) (int, error) { return call(unix.SYS_WRITE, fd, b) }

func read(fd int, b []byte) (int, error) { return call(unix.SYS_READ, fd, b) }

func call(number uintptr, fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func poll(fds []unix.PollFd, d time.Duration) error {
	t := unix.NsecToTimespec(int64(d))
	_, _, errno := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&t)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
