package path

import (
	"syscall"
	"unsafe"
)

// call reads into or writes from b without telling Go's scheduler. b is not
// empty and stays where it is: it is on the heap, and the call keeps it alive.
func call(number uintptr, fd int, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
