package measure

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CacheLinePair separates words that different processes write: 128 bytes,
// because the prefetcher of x86 fetches lines in pairs.
const CacheLinePair = 128

// Overlay returns n values of type T at off in b. T has no pointers, and b
// must stay mapped while they are used. Ordering: Go's atomics are sequentially
// consistent, so what was written to b before a Store is visible to who Loads
// the stored value, also in another process that has the same memory mapped.
// It panics if they do not fit or are not aligned: offsets are constants of
// the contenders.
func Overlay[T any](b []byte, off, n int) []T {
	var t T
	b = b[off:][:n*int(unsafe.Sizeof(t))]
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		panic("measure: unaligned overlay")
	}
	return unsafe.Slice((*T)(p), n)
}

// Word returns the 8 bytes at off in b as an atomic word; see Overlay.
func Word(b []byte, off int) *atomic.Uint64 { return &Overlay[atomic.Uint64](b, off, 1)[0] }

// SharedName shows in /proc/PID/maps, so that who accounts for the memory of a
// fabric can tell ours.
const SharedName = "dsbench"

// sharedMemory makes a memfd of size bytes.
func sharedMemory(size int) (*os.File, error) {
	fd, err := unix.MemfdCreate(SharedName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("measure: create shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), SharedName)
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("measure: size shared memory to %d bytes: %w", size, err)
	}
	return f, nil
}

// mapShared maps all of the memory behind fd.
func mapShared(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("measure: look at the shared memory: %w", err)
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("measure: map the shared memory: %w", err)
	}
	return b, nil
}
