// Package tracing has the kernel note when a program passes its tracepoints, as
// trace-cmd(1) does, with no tool but the kernel.
//
// A [Session] is an instance of tracefs with buffers of its own: whoever else traces
// does not see it, and loses nothing. The file system is mounted for this process
// alone, in no namespace, so the machine's mounts stay as they are. The instance goes
// with [Session.Close]. One whose process was killed stays, and keeps its tracepoints on,
// which costs; the next Open by anybody removes it.
//
// It needs root and Linux 5.2, and a kernel with CONFIG_FTRACE_SYSCALLS or another of the
// options that bring tracefs and the tracepoints of system calls.
package tracing

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Point is a tracepoint, and which of its events are kept.
type Point struct {
	Name   string // "sched/sched_switch"
	Filter string // as in the file filter of tracefs; "": all
}

// A Session is what notes. It is used by one goroutine at a time.
type Session struct {
	mount *os.File // of tracefs
	dir   string   // of the instance
}

// prefix of the names of instances; the process follows.
const prefix = "dsbench-"

// room is how many kB of events a CPU has on which the programs run; others have what the
// kernel gives them. An event takes some 50 bytes.
const room = 8 << 10

// Open prepares to note the points. cpus are those on which most of them are passed.
func Open(points []Point, cpus []int) (s *Session, err error) {
	mount, err := mount()
	if err != nil {
		return nil, err
	}
	root := fmt.Sprintf("/proc/self/fd/%d", mount.Fd())
	removeOrphans(filepath.Join(root, "instances"))
	s = &Session{mount, filepath.Join(root, "instances", prefix+strconv.Itoa(os.Getpid()))}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		mount.Close()
		return nil, fmt.Errorf("make an instance of tracefs: %w", err)
	}
	if err := s.prepare(points, cpus); err != nil {
		s.Close()
		return nil, fmt.Errorf("this kernel cannot trace what is wanted: %w", err)
	}
	return s, nil
}

func (s *Session) prepare(points []Point, cpus []int) error {
	// One clock for all CPUs, and with each event the process of its thread.
	settings := [][2]string{{"tracing_on", "0"}, {"trace_clock", "mono"}, {"options/record-tgid", "1"}}
	for _, cpu := range cpus {
		settings = append(settings, [2]string{fmt.Sprintf("per_cpu/cpu%d/buffer_size_kb", cpu), strconv.Itoa(room)})
	}
	for _, p := range points {
		if p.Filter != "" {
			settings = append(settings, [2]string{"events/" + p.Name + "/filter", p.Filter})
		}
		settings = append(settings, [2]string{"events/" + p.Name + "/enable", "1"})
	}
	for _, each := range settings {
		if err := s.set(each[0], each[1]); err != nil {
			return err
		}
	}
	return nil
}

// mount is a tracefs that nobody else sees.
func mount() (*os.File, error) {
	fail := func(err error) (*os.File, error) {
		switch {
		case errors.Is(err, unix.EPERM):
			return nil, fmt.Errorf("tracing needs root: run it with sudo (%w)", err)
		case errors.Is(err, unix.ENODEV):
			return nil, fmt.Errorf("this kernel has no tracefs: it is built without CONFIG_FTRACE (%w)", err)
		}
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	fs, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return fail(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	return os.NewFile(uintptr(fd), "tracefs"), nil
}

// removeOrphans removes the instances of processes that are gone.
func removeOrphans(instances string) {
	found, _ := filepath.Glob(filepath.Join(instances, prefix+"*"))
	for _, dir := range found {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		// A number may be that of another process by now, or of one in another pid namespace
		// be free here: such an instance is only spared, or busy.
		if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = unix.Rmdir(dir)
		}
	}
}

func (s *Session) set(name, value string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(value), 0)
}

// Start begins to note.
func (s *Session) Start() error { return s.set("tracing_on", "1") }

// ErrCrowded is of a session in which more happened than there was room for: other programs are
// busy, or messages come faster than they can be traced.
var ErrCrowded = errors.New("too much happens on this machine")

// Stop ends it, gives each line of what was noted, oldest first, and forgets it.
func (s *Session) Stop(each func(line string)) error {
	if err := s.set("tracing_on", "0"); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(s.dir, "trace"))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		// # entries-in-buffer/entries-written: 38191/38191   #P:2
		if counts, found := strings.CutPrefix(line, "# entries-in-buffer/entries-written: "); found {
			counts, _, _ = strings.Cut(counts, " ")
			if kept, written, _ := strings.Cut(counts, "/"); kept != written {
				return fmt.Errorf("only %s of %s events had room: %w", kept, written, ErrCrowded)
			}
		}
		if !strings.HasPrefix(line, "#") {
			each(line)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return s.set("trace", "")
}

// Close turns the points off and removes the instance.
func (s *Session) Close() error {
	err := unix.Rmdir(s.dir)
	s.mount.Close()
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the instance of tracefs: %w", err)
	}
	return nil
}
