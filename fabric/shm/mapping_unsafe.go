package shm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// Shared memory consists of memfds. The owner makes one, maps it, and seals it. A peer checks the
// seals and the size before it maps it, so that no later truncation can turn a load into a SIGBUS.

const (
	sealsShared = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	// sealsOwner: the owner's present mapping stays writable. Nobody can make another writable
	// mapping, write, or punch a hole, however the file is reopened.
	sealsOwner = sealsShared | unix.F_SEAL_FUTURE_WRITE
)

// A mapping is a mapped memfd. A failed call returns an empty one, which can be unmapped: its
// descriptor is -1, not 0.
type mapping struct {
	b  []byte
	fd int // the owner's descriptor, to pass to peers; -1 for a peer's memory
}

// newMemfd makes, maps and seals shared memory of a page-rounded size.
func newMemfd(name string, size int, peerWrites bool) (mapping, error) {
	if lim := fileSizeLimit(); uint64(size) > lim {
		return mapping{fd: -1}, fmt.Errorf("%s: %d bytes are above RLIMIT_FSIZE (%d); raise it (ulimit -f unlimited): %w", name, size, lim, fabric.ErrMemory)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return mapping{fd: -1}, fmt.Errorf("%s: %w", name, limitError(os.NewSyscallError("memfd_create", err)))
	}
	m := mapping{fd: fd}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		m.unmap()
		return mapping{fd: -1}, fmt.Errorf("%s: %w", name, limitError(os.NewSyscallError("ftruncate", err)))
	}
	if m.b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.unmap()
		return mapping{fd: -1}, fmt.Errorf("%s: %w", name, limitError(os.NewSyscallError("mmap", err)))
	}
	seals := sealsOwner
	if peerWrites {
		seals = sealsShared
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		m.unmap()
		return mapping{fd: -1}, fmt.Errorf("%s: %w", name, os.NewSyscallError("F_ADD_SEALS", err))
	}
	return m, nil
}

// mapPeer maps a descriptor that a peer sent. It must be a memfd of exactly this size that nobody
// can resize. The caller keeps the descriptor.
func mapPeer(fd, size int, write bool) (mapping, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&sealsShared != sealsShared {
		return mapping{fd: -1}, fmt.Errorf("shared memory without seals against resizing (%#x, %v)", seals, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != int64(size) {
		return mapping{fd: -1}, fmt.Errorf("shared memory of %d bytes instead of %d (%v)", st.Size, size, err)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return mapping{fd: -1}, limitError(os.NewSyscallError("mmap", err))
	}
	return mapping{b: b, fd: -1}, nil
}

// importable checks a mapping as each peer will do, and duplicates its file.
func importable(m fabric.Mapping) (fd int, err error) {
	seals, err := unix.FcntlInt(m.File, unix.F_GET_SEALS, 0)
	if err != nil || seals&sealsShared != sealsShared {
		return -1, fmt.Errorf("the file has no seals against resizing (%#x, %v): %w", seals, err, fabric.ErrRange)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.File), &st); err != nil || st.Size != int64(len(m.Bytes)) {
		return -1, fmt.Errorf("%d bytes are mapped of a file of %d (%v): %w", len(m.Bytes), st.Size, err, fabric.ErrRange)
	}
	if fd, err = unix.FcntlInt(m.File, unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return -1, limitError(os.NewSyscallError("F_DUPFD_CLOEXEC", err))
	}
	return fd, nil
}

// unmap frees the mapping. Nobody may use it any more.
func (m *mapping) unmap() {
	if m.b != nil {
		unix.Munmap(m.b)
		m.b = nil
	}
	if m.fd >= 0 {
		unix.Close(m.fd)
		m.fd = -1
	}
}

// slice returns bytes [off, off+n) of the mapping, or false if they are not in it: off and n come
// from a peer.
func (m *mapping) slice(off, n uint64) ([]byte, bool) {
	size := uint64(len(m.b))
	if off > size || n > size-off {
		return nil, false
	}
	return m.b[off : off+n], true
}

// word8 returns the 8 bytes b, if aligned, as a word that can be accessed in one piece.
func word8(b []byte) (*uint64, bool) {
	p := unsafe.Pointer(&b[0])
	return (*uint64)(p), len(b) >= 8 && uintptr(p)&7 == 0
}

// limitError adds the remedy to an error that a resource limit causes.
func limitError(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: %w; raise the limit of open files (ulimit -n)", fabric.ErrMemory, err)
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w: %w; the system is out of open files (sysctl fs.file-max)", fabric.ErrMemory, err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %w; raise the limits of memory (ulimit -v, vm.max_map_count)", fabric.ErrMemory, err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: %w; free some space", fabric.ErrMemory, err)
	}
	return err
}

func fileSizeLimit() uint64 {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &r) != nil {
		return ^uint64(0)
	}
	return r.Cur
}
