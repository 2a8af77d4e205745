//go:build cgo && linux

package libfabric

/*
#cgo CFLAGS: -I${SRCDIR}/include -Wall -O2
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include <netinet/in.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// Load finds the library, once in a process. An empty path means
// libfabric.so.1 wherever the dynamic linker looks.
func Load(path string) error {
	if path == "" {
		path = libraryName
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [C.EXN_WHY]C.char
	if C.exn_load(name, &why[0]) != 0 {
		return fmt.Errorf("%w: %s; %s", ErrMissing, C.GoString(&why[0]), remedyMissing)
	}
	if v := uint32(C.exn_version()); v < wantVersion {
		return fmt.Errorf("%w: it is %d.%d, and %d.%d or later is needed", ErrOld, v>>16, v&0xffff, wantVersion>>16, wantVersion&0xffff)
	}
	return nil
}

// Version is the version of the loaded library.
func Version() (major, minor int) {
	v := uint32(C.exn_version())
	return int(v >> 16), int(v & 0xffff)
}

// An Endpoint is an open RDM endpoint with its completion queue. Its methods
// are for one goroutine at a time. Memory that is given to it must not be of
// Go's heap, and stays as it is until the operation's event has come.
type Endpoint struct {
	Traits
	e      *C.struct_exn_endpoint
	events [eventBatch]C.struct_exn_event
}

// Open makes an endpoint that listens at an address. Load comes before.
func Open(s Settings) (*Endpoint, error) {
	provider, address, port := C.CString(s.Provider), C.CString(s.Listen.Addr().String()), C.CString(strconv.Itoa(int(s.Listen.Port())))
	defer C.free(unsafe.Pointer(provider))
	defer C.free(unsafe.Pointer(address))
	defer C.free(unsafe.Pointer(port))
	cs := C.struct_exn_settings{provider: provider, address: address, port: port,
		receives: C.size_t(s.Receives), sends: C.size_t(s.Sends)}
	var t C.struct_exn_traits
	var why [C.EXN_WHY]C.char
	e := &Endpoint{}
	if errno := C.exn_open(&cs, &e.e, &t, &why[0]); errno != 0 {
		return nil, &OpenError{Settings: s, What: C.GoString(&why[0]), Errno: syscall.Errno(-errno)}
	}
	e.Traits = Traits{
		Provider: C.GoString(&t.name[0]), Inject: int(t.inject), Sends: int(t.sends), Receives: int(t.receives), WaitFD: int(t.wait_fd),
		LocalRegions: t.mr_mode&mrLocal != 0, VirtualAddresses: t.mr_mode&mrVirtAddr != 0, ProviderKeys: t.mr_mode&mrProvKey != 0,
		KeySize: int(t.key_size),
	}
	return e, nil
}

// Close ends the endpoint. Operations under way are over then, without events.
func (e *Endpoint) Close() { C.exn_close(e.e) }

// Insert makes an address one that can be sent to.
func (e *Endpoint) Insert(a netip.AddrPort) (Address, error) {
	var to C.uint64_t
	var errno C.int
	if a.Addr().Is4() {
		var s C.struct_sockaddr_in
		s.sin_family = C.AF_INET
		*(*[4]byte)(unsafe.Pointer(&s.sin_addr)) = a.Addr().As4()
		*(*[2]byte)(unsafe.Pointer(&s.sin_port)) = [2]byte{byte(a.Port() >> 8), byte(a.Port())}
		errno = C.exn_insert(e.e, unsafe.Pointer(&s), &to)
	} else {
		var s C.struct_sockaddr_in6
		s.sin6_family = C.AF_INET6
		*(*[16]byte)(unsafe.Pointer(&s.sin6_addr)) = a.Addr().As16()
		*(*[2]byte)(unsafe.Pointer(&s.sin6_port)) = [2]byte{byte(a.Port() >> 8), byte(a.Port())}
		errno = C.exn_insert(e.e, unsafe.Pointer(&s), &to)
	}
	return Address(to), failure("insert address", errno)
}

// Remove forgets an address; its connection is closed.
func (e *Endpoint) Remove(a Address) error {
	return failure("remove address", C.exn_remove(e.e, C.uint64_t(a)))
}

// Send posts a message. ErrAgain means that it was not taken: the peer is
// being connected, or too much is under way.
func (e *Endpoint) Send(to Address, b []byte, r Region, context uint64) error {
	return failure("send", C.exn_send(e.e, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), r.desc, C.uint64_t(to), C.uint64_t(context)))
}

// Recv posts a buffer for one message.
func (e *Endpoint) Recv(b []byte, r Region, context uint64) error {
	return failure("post a receive", C.exn_recv(e.e, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), r.desc, C.uint64_t(context)))
}

// Write posts a write to a region of a peer. Its event means that the data are there.
func (e *Endpoint) Write(to Address, b []byte, r Region, at, key, context uint64) error {
	return failure("write", C.exn_write(e.e, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), r.desc, C.uint64_t(to),
		C.uint64_t(at), C.uint64_t(key), C.uint64_t(context)))
}

// Read posts a read from a region of a peer.
func (e *Endpoint) Read(to Address, b []byte, r Region, at, key, context uint64) error {
	return failure("read", C.exn_read(e.e, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), r.desc, C.uint64_t(to),
		C.uint64_t(at), C.uint64_t(key), C.uint64_t(context)))
}

// A Region is registered memory.
type Region struct {
	mr, desc unsafe.Pointer
	Key      uint64 // for peers
	Base     uint64 // what a peer adds an offset to
}

// Register makes memory known to the provider, under a key where we may choose.
func (e *Endpoint) Register(b []byte, read, write bool, key uint64) (Region, error) {
	var r C.struct_exn_region
	if err := failure("register memory", C.exn_register(e.e, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)),
		truth(read), truth(write), C.uint64_t(key), &r)); err != nil {
		return Region{}, err
	}
	region := Region{mr: r.mr, desc: r.desc, Key: uint64(r.key)}
	if e.VirtualAddresses {
		region.Base = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	}
	return region, nil
}

// Deregister takes it back. From then on the provider refuses the key.
func (e *Endpoint) Deregister(r Region) error {
	if r.mr == nil {
		return nil
	}
	c := C.struct_exn_region{mr: r.mr}
	return failure("deregister memory", C.exn_deregister(&c))
}

// Poll takes events.
func (e *Endpoint) Poll(into []Event) int {
	n := int(C.exn_poll(e.e, &e.events[0], C.int(min(len(into), eventBatch))))
	for i := range n {
		ev := &e.events[i]
		into[i] = Event{Context: uint64(ev.context), Length: int(ev.length), Errno: syscall.Errno(ev.error)}
	}
	return n
}

// MayWait reports whether the thread may sleep on WaitFD: nothing has
// happened that it would not be woken for.
func (e *Endpoint) MayWait() bool { return C.exn_trywait(e.e) == 0 }

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func failure(what string, errno C.int) error {
	switch {
	case errno == 0:
		return nil
	case errno == -C.int(syscall.EAGAIN):
		return ErrAgain
	}
	return fmt.Errorf("libfabric: %s: %w (%s)", what, syscall.Errno(-errno), C.GoString(C.exn_strerror(-errno)))
}
