package status

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Publish writes is what this package reads.
func TestPublish(t *testing.T) {
	const count = 300
	records, err := Publish("/run/exn", true, count)
	if err != nil {
		t.Fatal(err)
	}
	r := &records[count-1]
	r.Name(netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("[::1]:12345"))
	r.Reason.Store(uint32(NoPeer))
	r.Inode.Store(77)
	r.TCPRead.Store(5)
	r.TCPWritten.Store(6)
	r.Reads(100, 30, 50)
	r.Writes(7, 3, 2)
	r.ReadMode.Store(1)
	r.State.Store(uint32(Lane))
	p, found := Of(os.Getpid())
	if !found || p.Err != nil || p.Fabric != "/run/exn" || len(p.Sockets) != 1 {
		t.Fatalf("found %v: %+v", found, p)
	}
	want := Socket{State: Lane, Reason: NoPeer, Local: netip.MustParseAddrPort("127.0.0.1:80"), Remote: netip.MustParseAddrPort("[::1]:12345"), Inode: 77,
		ReadsLane: true, TCP: Bytes{5, 6}, VELO: Bytes{20, 2}, RMA: Bytes{30, 3}, ZCopy: Bytes{50, 2}}
	if p.Sockets[0] != want {
		t.Errorf("got  %+v\nwant %+v", p.Sockets[0], want)
	}
	r.Clear()
	if p, _ := Of(os.Getpid()); len(p.Sockets) != 0 {
		t.Errorf("after all: %+v", p.Sockets)
	}
	fd := published(t)
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("whoever may look at this process can end it")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, headSize); err == nil {
		t.Error("whoever may look at this process can write what it shows")
	}
}

// published returns a descriptor of the memory that this process publishes, as another process
// would get it.
func published(t *testing.T) int {
	t.Helper()
	paths, _ := filepath.Glob("/proc/self/fd/*")
	for _, path := range paths {
		if name, err := os.Readlink(path); err == nil && strings.HasPrefix(name, memory) {
			fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			ours, _ := strconv.Atoi(filepath.Base(path)) // it is a number
			t.Cleanup(func() { unix.Close(fd); unix.Close(ours) })
			return fd
		}
	}
	t.Fatal("nothing is published")
	return -1
}

// The C library has the same head, field by field.
func TestHeadIsThatOfTheLibrary(t *testing.T) {
	var r Record
	var want strings.Builder
	fmt.Fprintf(&want, "%x %d %d %d %d\n", uint64(magic), version, headSize, programAt, fabricAt)
	for i, name := range []string{"state", "reason", "tuple", "ino", "tcp_rx", "tcp_tx", "lane_rx", "lane_tx", "rx_mode", "tx_mode", "rma_rx", "rma_tx", "zcopy_rx", "zcopy_tx", "number"} {
		fmt.Fprintf(&want, "%s %d\n", name, fieldsAt+4*i)
	}
	program := `#include <stddef.h>
#include <stdio.h>
#include "status.h"
#include "family.h"
#define AT(field) (int)offsetof(struct status_head, field)
int main(void)
{
	printf("%llx %d %d %d %d\n", STATUS_MAGIC, STATUS_VERSION, (int)sizeof(struct status_head), AT(program), AT(fabric));
#define FIELD(name) printf("%s %d\n", #name, AT(name))
	FIELD(state); FIELD(reason); FIELD(tuple); FIELD(ino); FIELD(tcp_rx); FIELD(tcp_tx);
	FIELD(lane_rx); FIELD(lane_tx); FIELD(rx_mode); FIELD(tx_mode); FIELD(rma_rx); FIELD(rma_tx); FIELD(zcopy_rx); FIELD(zcopy_tx); FIELD(number);
	if (offsetof(struct tuple, remote_port) != ` + fmt.Sprint(unsafe.Sizeof(r.tuple)-2) + ` || AT(pid) != 12 || AT(conns_offset) != 16 || AT(conn_size) != 24 || AT(conn_count) != 28)
		puts("other places");
	return 0;
}`
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "head.c"), filepath.Join(dir, "head")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if text, err := exec.Command(cc, "-std=c11", "-D_GNU_SOURCE", "-I../preload", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	got, err := exec.Command(binary).Output()
	if err != nil || string(got) != want.String() {
		t.Errorf("%v: the library has\n%s, here is\n%s", err, got, want.String())
	}
}
