package shm

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A read-only region stays as it is, whatever a process that has its
// descriptor tries.
func TestReadOnlyRegions(t *testing.T) {
	n := attach(t, fabricDir(t), 0)
	rma, err := n.OpenRMA(0, fabric.PortInterrupts{})
	if err != nil {
		t.Fatal(err)
	}
	openWindow(t, n, rma, 65536, fabric.RemoteRead)
	for name, m := range map[string]*mapping{"node region": &n.region.mapping, "channel region": &n.self.tx.mapping, "memory": &n.memories[1].m} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.Dup(m.fd)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), name)
			defer f.Close()
			copy(m.b[64:], "ours")
			before := string(m.b)
			p := start(t, withFile(f), "pokes", fmt.Sprint(len(m.b)))
			tried := 0
			for s := p.line(); s != "end"; s = p.line() {
				tried++
				if s != "refused" {
					t.Errorf("possible: %s", s)
				}
			}
			if tried != len(pokeRoutes) {
				t.Errorf("%d routes tried, want %d", tried, len(pokeRoutes))
			}
			if string(m.b) != before {
				t.Error("the memory has changed")
			}
		})
	}
	// The routes work where they are allowed to: on memory for PUTs.
	openWindow(t, n, rma, 65536, fabric.RemoteWrite)
	fd, _ := unix.Dup(n.memories[2].m.fd)
	f := os.NewFile(uintptr(fd), "writable")
	defer f.Close()
	p := start(t, withFile(f), "pokes", "65536")
	possible := 0
	for s := p.line(); s != "end"; s = p.line() {
		if s != "refused" {
			possible++
		}
	}
	if possible < 8 {
		t.Errorf("only %d routes work on writable memory: the others prove nothing", possible)
	}
}

// pokeRoutes are the ways to change a memfd of which descriptor 3 is known.
var pokeRoutes = []struct {
	name string
	try  func(size int) error
}{
	{"mmap", func(size int) error { return mapAndWrite(3, size) }},
	{"reopen and mmap", func(size int) error { return reopened(func(fd int) error { return mapAndWrite(fd, size) }) }},
	{"mprotect", func(size int) error {
		b, err := unix.Mmap(3, 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err == nil {
			err = unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
		}
		return err
	}},
	{"pwrite", func(int) error { _, err := unix.Pwrite(3, []byte("evil"), 64); return err }},
	{"reopen and pwrite", func(int) error {
		return reopened(func(fd int) error { _, err := unix.Pwrite(fd, []byte("evil"), 64); return err })
	}},
	{"truncate", func(int) error { return unix.Ftruncate(3, 0) }},
	{"grow", func(size int) error { return unix.Ftruncate(3, int64(size)*2) }},
	{"truncate by name", func(int) error { return unix.Truncate("/proc/self/fd/3", 0) }},
	{"open with O_TRUNC", func(int) error {
		f, err := os.OpenFile("/proc/self/fd/3", os.O_RDWR|os.O_TRUNC, 0)
		if err == nil {
			defer f.Close()
			if st, _ := f.Stat(); st.Size() != 0 {
				return unix.EPERM
			}
		}
		return err
	}},
	{"punch a hole", func(size int) error {
		return unix.Fallocate(3, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(size))
	}},
	{"MADV_REMOVE", func(size int) error {
		b, err := unix.Mmap(3, 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err == nil {
			err = unix.Madvise(b, unix.MADV_REMOVE)
		}
		return err
	}},
	{"splice", func(int) error {
		r, w, err := os.Pipe()
		if err != nil {
			return nil
		}
		io.WriteString(w, "evil")
		off := int64(64)
		_, err = unix.Splice(int(r.Fd()), nil, 3, &off, 4, 0)
		return err
	}},
	{"remove the seals", func(int) error { _, err := unix.FcntlInt(3, unix.F_ADD_SEALS, 0); return err }},
}

func mapAndWrite(fd, size int) error {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		copy(b[64:], "evil")
	}
	return err
}

func reopened(do func(fd int) error) error {
	f, err := os.OpenFile("/proc/self/fd/3", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}

func pokes(args []string) {
	size, _ := strconv.Atoi(args[0])
	for _, r := range pokeRoutes {
		if err := r.try(size); err != nil {
			fmt.Println("refused")
		} else {
			fmt.Println(r.name)
		}
	}
	fmt.Println("end")
}
