package fabrictest

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// atuImport: memory that was mapped before works like memory from Alloc, and is still mapped when
// the fabric has released it.
func atuImport(r *rig) {
	const size = 3 << 16
	n := r.nodes(2)
	a, b := r.rma(n[0], 3), r.rma(n[1], 4)
	fd, err := unix.MemfdCreate("imported", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	r.check(err)
	file := os.NewFile(uintptr(fd), "imported")
	defer file.Close()
	r.check(file.Truncate(size))
	mapped, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	r.check(err)
	r.Cleanup(func() { unix.Munmap(mapped) })
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	r.check(err)

	_, err = n[1].Import(fabric.Mapping{}, fabric.RemoteRead)
	r.wants("import nothing", err, fabric.ErrRange)
	mem, err := n[1].Import(fabric.Mapping{Bytes: mapped, File: uintptr(fd)}, fabric.RemoteRead|fabric.RemoteWrite)
	r.check(err)
	r.check(file.Close()) // by now the fabric has a descriptor of its own
	win, err := b.Register(mem, fabric.WindowSpec{Rights: fabric.RemoteRead | fabric.RemoteWrite, Offset: 100, Length: size - 100})
	r.check(err)
	local := r.region(a, size, 0)
	for k, length := range []int{1, 5000, size - 100} {
		for _, c := range []fabric.Command{fabric.Put, fabric.Get} {
			src, dst := local.bytes, mapped[100:]
			if c == fabric.Get {
				src, dst = dst, src
			}
			want := random(uint64(k), length)
			copy(src, want)
			clear(dst[:length])
			d := operation(c, allNotifications, b, length, local.win.NLA(), win.NLA())
			r.check(a.post(d))
			r.expect(d, a, b)
			if !bytes.Equal(dst[:length], want) {
				r.Errorf("%v of %d bytes of imported memory: the data did not arrive", c, length)
			}
		}
	}
	r.wants("free memory under a window", mem.Free(), fabric.ErrInUse)
	r.check(win.Deregister())
	r.released(win)
	r.check(mem.Free())
	copy(mapped, "still mapped")
	r.check(n[1].Close())
	if string(mapped[:12]) != "still mapped" {
		r.Error("the fabric took the mapping along")
	}
}
