package directsockets

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/internal/late"
)

// System calls that package unix does not have, or only with a notice to the scheduler. Calls that
// never block do not need that notice.

var nothingAt = uintptr(unsafe.Pointer(&nothing[0])) // a global: it does not move

func getcpu(c *uint32) (uintptr, uintptr, unix.Errno) {
	return unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(c)), 0, 0)
}

// poll returns the current events of a descriptor, as poll(2).
func poll(fd int, events int16) int16 {
	p := unix.PollFd{Fd: int32(fd), Events: events}
	var now unix.Timespec
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
		switch {
		case e == unix.EINTR: // the runtime's signals
		case e != 0 || n == 0:
			return 0
		default:
			return p.Revents
		}
	}
}

// disconnect makes the kernel send RST at once, by connect(2) to AF_UNSPEC.
func disconnect(fd int) {
	var none unix.RawSockaddr // AF_UNSPEC is 0
	unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
}

// kick sends a signal that interrupts whatever the process does, so that it looks at our request.
// The value tells it that the signal is not for its program.
func kick(pid int) {
	info := struct {
		signo, errno, code, _, pid, uid int32
		value                           int64
		_                               [96]byte
	}{signo: int32(unix.SIGURG), code: -1 /* SI_QUEUE */, pid: int32(os.Getpid()), uid: int32(os.Getuid()), value: 0x45584453}
	late.Wake()
	unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&info)))
}

// addressOf returns the address of b. The caller keeps b on the heap and reachable.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// readProcess copies from an address of another process. It returns -1 on failure.
func readProcess(pid int, address uint64, b []byte) int {
	to := unix.Iovec{Base: unsafe.SliceData(b)}
	to.SetLen(len(b))
	from := unix.RemoteIovec{Base: uintptr(address), Len: len(b)}
	n, _, e := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&to)), 1, uintptr(unsafe.Pointer(&from)), 1, 0)
	if e != 0 {
		return -1
	}
	return int(n)
}

// probeProcess asks the kernel to copy from an unmapped address, and reports whether that was
// permitted.
func probeProcess(pid int) bool {
	var b [1]byte
	to := unix.Iovec{Base: &b[0]}
	to.SetLen(1)
	from := unix.RemoteIovec{Len: 1}
	_, _, e := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&to)), 1, uintptr(unsafe.Pointer(&from)), 1, 0)
	return e == unix.EFAULT
}
