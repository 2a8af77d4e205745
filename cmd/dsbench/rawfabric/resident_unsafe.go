package rawfabric

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// resident returns the resident bytes of each piece of shared memory that
// this process has open or mapped, by device and inode. What is open is asked
// for its blocks; what is only mapped is counted with mincore(2), which tells
// for shared memory whether a page is there at all, no matter who touched it.
// The measuring core's own memory is left out.
func resident() (map[string]int64, error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("count resident memory: %w", err)
	}
	defer maps.Close()
	out, err := residentMapped(maps)
	if err != nil {
		return nil, fmt.Errorf("count resident memory: %w", err)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return nil, fmt.Errorf("count resident memory: %w", err)
	}
	for _, fd := range fds {
		name, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(name, "/memfd:") || ours(name) {
			continue // closed meanwhile, or something else
		}
		var st unix.Stat_t
		if unix.Stat(fd, &st) == nil {
			out[fmt.Sprintf("%02x:%02x %d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)] = st.Blocks * 512
		}
	}
	return out, nil
}

// residentMapped counts the pages of the shared mappings in a maps file.
func residentMapped(maps io.Reader) (map[string]int64, error) {
	type page struct {
		of string
		at uint64
	}
	seen := map[page]bool{} // a page can be mapped twice
	out := map[string]int64{}
	size := uint64(os.Getpagesize())
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var start, end, offset, ino uint64
		var rights, dev string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &start, &end, &rights, &offset, &dev, &ino); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if len(rights) != 4 || rights[3] != 's' || ours(lines.Text()) {
			continue
		}
		of := fmt.Sprintf("%s %d", dev, ino)
		// 256 MiB at a time: mappings may reserve far more than there is.
		for ; start < end; start += 256 << 20 {
			vec := make([]byte, (min(end-start, 256<<20)+size-1)/size)
			if err := mincore(start, uint64(len(vec))*size, vec); err != nil {
				if err == unix.ENOMEM {
					continue // unmapped meanwhile
				}
				return nil, fmt.Errorf("mincore: %w", err)
			}
			for i, v := range vec {
				p := page{of, offset + uint64(i)*size}
				if v&1 == 1 && !seen[p] {
					seen[p] = true
					out[of] += int64(size)
				}
			}
			offset += 256 << 20
		}
	}
	return out, lines.Err()
}

// ours tells the measuring core's memory, by its name at the end of s.
func ours(s string) bool { return strings.Contains(s, "/memfd:"+measure.SharedName) }

// mincore fills vec, a byte per page. The address is one of the process's
// mappings, of which Go knows nothing: it is only looked at by the kernel.
func mincore(addr, length uint64, vec []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(addr), uintptr(length), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
