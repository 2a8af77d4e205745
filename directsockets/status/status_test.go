package status

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The memory that the tests write has records of 512 bytes right after the head.
const (
	testSize  = 512
	testCount = 5000
)

// testFields places the fields in another order than that of the head.
var testFields = [fields]uint32{300, 4, 100, 200, 208, 216, 224, 232, 8, 12, 240, 248, 256, 264}

func testHead() []byte {
	h := make([]byte, headSize)
	binary.NativeEndian.PutUint64(h[0:], magic)
	binary.NativeEndian.PutUint32(h[8:], version)
	binary.NativeEndian.PutUint64(h[16:], headSize)
	binary.NativeEndian.PutUint32(h[24:], testSize)
	binary.NativeEndian.PutUint32(h[28:], testCount)
	for i, at := range testFields {
		binary.NativeEndian.PutUint32(h[fieldsAt+4*i:], at)
	}
	copy(h[programAt:], "red\x1b[31m")
	copy(h[fabricAt:], "/run/exn")
	return h
}

// A testRecord holds a record's values by field.
type testRecord map[int]uint64

func (r testRecord) put(b []byte) {
	for field, v := range r {
		if width[field] == 8 {
			binary.NativeEndian.PutUint64(b[testFields[field]:], v)
		} else {
			binary.NativeEndian.PutUint32(b[testFields[field]:], uint32(v))
		}
	}
}

// publish makes a memory file like the library's. This process keeps a descriptor of it during the
// test.
func publish(t testing.TB, name string, head []byte, size int64, records map[int][]byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		t.Fatal(err)
	}
	for i, b := range records {
		if _, err := f.WriteAt(b, headSize+int64(i)*testSize); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

const wholeSize = headSize + testSize*testCount

func TestReadsWhatTheLibraryPublishes(t *testing.T) {
	// The first and the last record, and one far from both, after a hole.
	records := map[int][]byte{}
	for i, r := range map[int]testRecord{
		0:             {fieldState: uint64(Listener)},
		1:             {fieldState: uint64(Free), fieldTCPRead: 9},
		2:             {fieldState: uint64(Closed)},
		2000:          {fieldState: uint64(TCP), fieldReason: uint64(NoPeer), fieldTCPRead: 5, fieldTCPWritten: 6, fieldReadMode: 1},
		testCount - 1: {fieldState: uint64(Lane), fieldLaneRead: 100, fieldRMARead: 30, fieldLaneWritten: 7, fieldRMAWritten: 8, fieldWriteMode: 1, fieldInode: 77},
	} {
		b := make([]byte, testSize)
		r.put(b)
		records[i] = b
	}
	tuple := records[testCount-1][testFields[fieldTuple]:]
	copy(tuple, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01")
	copy(tuple[16:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01")
	copy(tuple[32:], "\x00\x50\x30\x39")
	publish(t, "exn-ds-family", testHead(), wholeSize, records)

	p, found := Of(os.Getpid())
	if !found || p.Err != nil {
		t.Fatalf("found %v, %v", found, p.Err)
	}
	want := []Socket{
		{State: Listener},
		{State: TCP, Reason: NoPeer, TCP: Bytes{5, 6}},
		{State: Lane, Local: netip.MustParseAddrPort("127.0.0.1:80"), Remote: netip.MustParseAddrPort("[::1]:12345"), Inode: 77,
			WritesLane: true, VELO: Bytes{70, 0}, RMA: Bytes{30, 8}},
	}
	if !reflect.DeepEqual(p.Sockets, want) {
		t.Errorf("got  %+v\nwant %+v", p.Sockets, want)
	}
	if p.PID != os.Getpid() || p.Fabric != "/run/exn" || p.Program == "" {
		t.Errorf("got %+v", p)
	}
	all, err := All()
	if err != nil || !slices.ContainsFunc(all, func(p Process) bool { return p.PID == os.Getpid() }) {
		t.Errorf("All does not list this process: %v %v", all, err)
	}
}

// A container may know its fabric directory by another name.
func TestIn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for mounts")
	}
	fabric, name := t.TempDir(), t.TempDir()
	cmd := exec.Command("sh", "-c", `mount --bind "$0" "$1" && echo mounted && exec sleep 1000000`, fabric, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, len("mounted"))); err != nil {
		t.Skip("mounts are not permitted here")
	}
	p := Process{PID: cmd.Process.Pid, Fabric: name}
	if !p.In(fabric) || p.In(name) {
		t.Errorf("in its fabric directory: %v; in another of that name: %v", p.In(fabric), p.In(name))
	}
	p = Process{PID: os.Getpid(), Fabric: fabric + "/later"} // does not exist yet
	if !p.In(fabric+"/./later/") || p.In(fabric) {
		t.Error("by a name of which nothing is there")
	}
}

// Another program that looks at the same moment does not publish.
func TestObserversAreNotShown(t *testing.T) {
	f := publish(t, "exn-ds-family", testHead(), wholeSize, nil)
	read, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	path, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := os.NewFile(uintptr(path), "path")
	defer name.Close()
	for what, files := range map[string][]*os.File{"who reads": {read}, "who has its path": {name}, "who reads and publishes": {read, f}} {
		other := exec.Command("sleep", "100")
		other.ExtraFiles = files
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		p, found := Of(other.Process.Pid)
		other.Process.Kill()
		other.Wait()
		if publishes := len(files) > 1; found != publishes || p.Err != nil {
			t.Errorf("%s: found %v, %v", what, found, p.Err)
		}
	}
}

// A process that has just started and has written nothing yet is not shown with an error.
func TestBeginnersAreNotShown(t *testing.T) {
	for what, size := range map[string]int64{"no size yet": 0, "no head yet": wholeSize} {
		other := exec.Command("sleep", "100")
		other.ExtraFiles = []*os.File{publish(t, "exn-ds-family", nil, size, nil)}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		p, found := Of(other.Process.Pid)
		other.Process.Kill()
		other.Wait()
		if found {
			t.Errorf("%s: found, %v", what, p.Err)
		}
	}
}

// A program may write anything to its memory. It is reported with an error, and nothing outside the
// memory is read.
func TestNonsenseIsRefused(t *testing.T) {
	put32 := func(at int, v uint32) func([]byte) {
		return func(h []byte) { binary.NativeEndian.PutUint32(h[at:], v) }
	}
	for name, spoil := range map[string]func(h []byte){
		"magic":             put32(0, 1),
		"version":           put32(8, version+1),
		"records in head":   func(h []byte) { binary.NativeEndian.PutUint64(h[16:], 8) },
		"records behind":    func(h []byte) { binary.NativeEndian.PutUint64(h[16:], wholeSize) },
		"records far away":  func(h []byte) { binary.NativeEndian.PutUint64(h[16:], 1<<64-testSize*testCount) },
		"no size":           put32(24, 0),
		"huge records":      put32(24, 1<<31),
		"too many":          put32(28, testCount+1),
		"far too many":      put32(28, 1<<32-1),
		"field behind":      put32(fieldsAt, testSize-3),
		"tuple half behind": put32(fieldsAt+4*fieldTuple, testSize-35),
		"field far away":    put32(fieldsAt+4*fieldRMAWritten, 1<<32-1),
	} {
		h := testHead()
		spoil(h)
		f := publish(t, "x", h, wholeSize, nil)
		if p, err := read(f, wholeSize); err == nil {
			t.Errorf("%s: got %+v", name, p)
		} else if (name == "version") != errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
	short := publish(t, "x", testHead()[:100], 100, nil)
	if p, err := read(short, 100); err == nil {
		t.Errorf("a head of 100 bytes gives %+v", p)
	}
}

// A file that only has the name of a status memory is not opened: opening a pipe might never
// return.
func TestOnlyMemoryIsOpened(t *testing.T) {
	path := t.TempDir() + "/pipe"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := open(path); err == nil || !strings.Contains(err.Error(), "not a memory file") {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestTextIsHarmless(t *testing.T) {
	for in, want := range map[string]string{"redis": "redis", "a\x00b": "a", "a\nb": "a", "\x1b[2Jx\u202e": "?[2Jx?", "é ü": "é ü", "\xff": "\ufffd"} {
		if got := harmless([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// The library numbers and names states and reasons. This package has a second list of them, with
// remedies.
func TestNamesAreThoseOfTheLibrary(t *testing.T) {
	source, err := os.ReadFile("../preload/family.c")
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) (out []string) {
		_, text, _ := strings.Cut(string(source), name)
		text, _, _ = strings.Cut(text, "};")
		for _, m := range regexp.MustCompile(`"([^"]*)"`).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	var ours []string
	for _, r := range reasons {
		ours = append(ours, r.name)
	}
	if theirs := list("reason_names[REASON_COUNT] = {"); !slices.Equal(ours, theirs) {
		t.Errorf("reasons:\n%q\nin the library:\n%q", ours, theirs)
	}
	if theirs := list("state_names[] = {"); len(theirs) != len(states) {
		t.Errorf("%d states, in the library %q", len(states), theirs)
	}
	for i := range reasons {
		if r := Reason(i); r != None && r.Remedy() == "" {
			t.Errorf("%v has no remedy", r)
		}
	}
	if got := Reason(99).String() + State(99).String(); got != "reason 99state 99" {
		t.Errorf("unknown ones are %q", got)
	}
}

// Whatever the memory contains, there is no panic and no endless loop.
func FuzzRead(f *testing.F) {
	f.Add(testHead(), []byte("\x01"), uint16(3))
	f.Add(testHead(), make([]byte, testSize), uint16(testCount-1))
	f.Fuzz(func(t *testing.T, head, record []byte, at uint16) {
		if len(head) > headSize || len(record) > testSize {
			t.Skip("larger than what they stand for")
		}
		file := publish(t, "fuzz", head, wholeSize, map[int][]byte{int(at) % testCount: record})
		p, err := read(file, wholeSize)
		if err == nil && len(p.Sockets) > mostRecords {
			t.Errorf("%d sockets", len(p.Sockets))
		}
		file.Close()
	})
}
