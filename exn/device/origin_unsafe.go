package device

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Origins counts the packets that the kernel sends through an interface, read or not, by the CPU
// that sent them. Reading a count is a memory access.
type Origins struct {
	mapped []byte
	counts []origin
}

// An origin has a cache line of its own, because a CPU writes to it for each packet.
type origin struct {
	packets atomic.Uint64
	_       [56]byte
}

const possibleCPUs = "/sys/devices/system/cpu/possible"

// Origins makes the kernel count packets from now on. It loads a BPF program, for which the process
// may lack the permission. Close of the result ends the reading; the counting ends with the
// interface.
func (d *TunTap) Origins() (*Origins, error) {
	n, err := cpuNumbers()
	if err != nil {
		return nil, err
	}
	counts, err := bpf(unix.BPF_MAP_CREATE, unsafe.Pointer(&struct{ kind, key, value, entries, flags uint32 }{
		unix.BPF_MAP_TYPE_ARRAY, 4, uint32(unsafe.Sizeof(origin{})), uint32(n), unix.BPF_F_MMAPABLE}), 20)
	if err != nil {
		return nil, fmt.Errorf("bpf: map: %w", err)
	}
	defer unix.Close(counts)
	program := countOrigins(counts)
	license := []byte("\x00")
	filter, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&struct {
		kind, count   uint32
		code, license unsafe.Pointer
		_             [4]uint64
	}{unix.BPF_PROG_TYPE_SOCKET_FILTER, uint32(len(program)), unsafe.Pointer(&program[0]), unsafe.Pointer(&license[0]), [4]uint64{}}), 56)
	if err != nil {
		return nil, fmt.Errorf("bpf: program: %w", err)
	}
	defer unix.Close(filter)
	mapped, err := unix.Mmap(counts, 0, n*int(unsafe.Sizeof(origin{})), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("bpf: mmap: %w", err)
	}
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETFILTEREBPF, filter); err != nil {
		_ = unix.Munmap(mapped)
		return nil, fmt.Errorf("TUNSETFILTEREBPF: %w", err)
	}
	return &Origins{mapped, unsafe.Slice((*origin)(unsafe.Pointer(&mapped[0])), n)}, nil
}

// CPUs returns the number of possible CPUs; all CPU numbers are below it.
func (o *Origins) CPUs() int { return len(o.counts) }

// Count returns the packets that a CPU has sent.
func (o *Origins) Count(cpu int) uint64 { return o.counts[cpu].packets.Load() }

// Close unmaps the counts. It must be the last call.
func (o *Origins) Close() error {
	o.counts = nil
	return unix.Munmap(o.mapped)
}

// cpuNumbers returns the highest possible CPU number plus one.
func cpuNumbers() (int, error) {
	text, err := os.ReadFile(possibleCPUs) // such as 0-7 or 0,2-3
	if err != nil {
		return 0, fmt.Errorf("number of CPUs: %w", err)
	}
	last := strings.TrimSpace(string(text))
	last = last[strings.LastIndexAny(last, ",-")+1:]
	n, err := strconv.ParseUint(last, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("number of CPUs: %s: %w", possibleCPUs, err)
	}
	return int(n) + 1, nil
}

// An instruction has the layout of struct bpf_insn.
type instruction struct {
	code      uint8
	registers uint8 // source << 4 | destination
	offset    int16
	immediate int32
}

// countOrigins returns the program. It adds one to the packets of the CPU that it runs on, and lets
// the whole packet pass. No other writer interferes, because the kernel sends with softirqs off.
//
//	struct origin *o = bpf_map_lookup_elem(counts, &(u32){bpf_get_smp_processor_id()});
//	if (o)
//		o->packets++;
//	return skb->len;
func countOrigins(counts int) []instruction {
	const (
		getCPU = 8 // bpf_get_smp_processor_id
		lookUp = 1 // bpf_map_lookup_elem

		move     = unix.BPF_ALU64 | unix.BPF_MOV
		call     = unix.BPF_JMP | unix.BPF_CALL
		add      = unix.BPF_ALU64 | unix.BPF_ADD
		load32   = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
		load64   = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_DW
		store32  = unix.BPF_STX | unix.BPF_MEM | unix.BPF_W
		store64  = unix.BPF_STX | unix.BPF_MEM | unix.BPF_DW
		constant = unix.BPF_LD | unix.BPF_IMM | unix.BPF_DW
	)
	return []instruction{
		{move | unix.BPF_X, 0x16, 0, 0}, // r6 = skb
		{call, 0, 0, getCPU},
		{store32, 0x0a, -4, 0}, // the key, on the stack
		{move | unix.BPF_X, 0xa2, 0, 0},
		{add, 0x02, 0, -4},
		{constant, unix.BPF_PSEUDO_MAP_FD<<4 | 1, 0, int32(counts)},
		{},
		{call, 0, 0, lookUp},
		{unix.BPF_JMP | unix.BPF_JEQ, 0, 3, 0},
		{load64, 0x01, 0, 0},
		{add, 0x01, 0, 1},
		{store64, 0x10, 0, 0},
		{load32, 0x60, 0, 0}, // skb->len
		{unix.BPF_JMP | unix.BPF_EXIT, 0, 0, 0},
	}
}

// bpf is bpf(2). The caller's pointers keep alive what attributes points to.
func bpf(command uintptr, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
