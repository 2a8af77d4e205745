package shm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/dir"
)

// A fabric directory contains
//
//	fabric       the marker: {"exnet fabric": 1}, the version of the format
//	lock         locked while a node attaches: nodes attach one at a time
//	node-7.lock  locked by node 7 while it lives; describes its process
//	node-7.sock  where node 7 listens
//	ds           where EXT-DS meets; may be there before the first node
//
// The kernel drops the locks of dead processes. So the next node that attaches takes over what a
// crash has left.
const (
	formatVersion = 1
	markerFile    = "fabric"
	lockFile      = "lock"
	// attachPatience is how long an attachment waits for others that are attaching. These take
	// milliseconds, unless one was stopped.
	attachPatience = 3 * time.Second
)

// DefaultDir returns the fabric directory to use when none is named (dir.Default), or "" if there
// is none.
func DefaultDir() string {
	path, _ := dir.Default()
	return path
}

// A directory is an open fabric directory.
type directory struct {
	path   string
	shared bool // a group may attach, not only one user
	made   bool // by this node
}

// openDirectory makes or checks the fabric directory.
func openDirectory(path string) (*directory, error) {
	if path == "" {
		return nil, dir.ErrNone
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if n := len(socketPath(path, fabric.MaxNodeID)); n > maxSocketPath {
		return nil, fmt.Errorf("fabric directory %s: the path is %d bytes too long for sockets in it; choose a shorter one", path, n-maxSocketPath)
	}
	d := &directory{path: path}
	switch err := os.Mkdir(path, 0o700); {
	case err == nil:
		d.made = true
	case !errors.Is(err, fs.ErrExist):
		return nil, fmt.Errorf("fabric directory: %w", limitError(err))
	}
	if err := d.checkOwner(); err != nil {
		return nil, err
	}
	if err := d.checkMarker(); err != nil {
		if d.made {
			os.Remove(path) // fails, as it should, if somebody else has used it meanwhile
		}
		return nil, err
	}
	return d, nil
}

// discard removes the directory if this node made it and it contains only what every fabric has. It
// first renames the directory, and then removes it. A node that attaches meanwhile finds no
// directory, or finds that its lock is gone, and starts again.
func (d *directory) discard() error {
	if !d.made {
		return nil
	}
	unlock, err := d.lockAttach()
	if err != nil {
		return err
	}
	defer unlock()
	entries, err := os.ReadDir(d.path)
	for _, e := range entries {
		name := e.Name()
		empty := e.IsDir() && os.Remove(filepath.Join(d.path, name)) == nil
		if name != markerFile && name != lockFile && !empty {
			return nil // somebody else uses it
		}
	}
	gone := fmt.Sprintf("%s.gone-%d", d.path, os.Getpid())
	if err == nil {
		err = os.Rename(d.path, gone)
	}
	if err == nil {
		err = os.RemoveAll(gone)
	}
	if err != nil {
		return fmt.Errorf("fabric directory: %w", err)
	}
	return nil
}

// maxSocketPath is the longest path that fits into sockaddr_un.
const maxSocketPath = 107

func (d *directory) checkOwner() error {
	peers := dir.Policy()
	if err := dir.Judge(d.path, peers); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(d.path, &st); err != nil {
		return fmt.Errorf("fabric directory: %w", &fs.PathError{Op: "stat", Path: d.path, Err: err})
	}
	d.shared = peers == dir.Group && st.Mode&0o070 == 0o070
	if err := unix.Access(d.path, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("fabric directory %s: %w; you must be its owner or in its group", d.path, err)
	}
	return nil
}

// notADirectory returns the error for a path that names something else. It wraps ENOTDIR.
func notADirectory(path string) error {
	return &misplaced{fmt.Sprintf("fabric directory %s: is not a directory; name another", path), unix.ENOTDIR}
}

// A misplaced error has its own text and wraps an error of the kernel.
type misplaced struct {
	text string
	err  error
}

func (m *misplaced) Error() string { return m.text }
func (m *misplaced) Unwrap() error { return m.err }

func (d *directory) checkMarker() error {
	name := filepath.Join(d.path, markerFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.adopt(name)
	}
	if err != nil {
		return fmt.Errorf("fabric directory: %w", err)
	}
	var m struct {
		Version *int `json:"exnet fabric"`
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Version == nil {
		return fmt.Errorf("fabric directory %s: its file %q is not a fabric's; name another directory", d.path, markerFile)
	}
	if *m.Version != formatVersion {
		return fmt.Errorf("fabric directory %s: has format %d, this program speaks %d; use the same version of exnet everywhere, or another directory: %w", d.path, *m.Version, formatVersion, fabric.ErrVersion)
	}
	return nil
}

// socketPlane reports whether EXT-DS makes an entry of this name. EXT-DS first makes its directory
// under another name.
func socketPlane(name string) bool {
	return name == "ds" || strings.HasPrefix(strings.TrimPrefix(name, "."), "ds-")
}

// adopt turns a directory that is empty, or was used only by EXT-DS, into a fabric.
func (d *directory) adopt(marker string) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("fabric directory: %w", err)
	}
	for _, e := range entries {
		// Another node may be adopting the directory now, or may have done so.
		if e.Name() != markerFile && !strings.HasPrefix(e.Name(), markerFile+".") && !socketPlane(e.Name()) {
			if _, err := os.Stat(marker); err == nil {
				return d.checkMarker()
			}
			return fmt.Errorf("fabric directory %s: holds %q but is no fabric; name an empty or new directory", d.path, e.Name())
		}
	}
	f, err := os.CreateTemp(d.path, markerFile+".*")
	if err != nil {
		return fmt.Errorf("fabric directory: %w", limitError(err))
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintf(f, "{\"exnet fabric\": %d}\n", formatVersion)
	err = errors.Join(err, f.Chmod(d.fileMode()), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), marker)
	}
	if err != nil {
		return fmt.Errorf("fabric directory: %w", limitError(err))
	}
	return nil
}

func (d *directory) fileMode() fs.FileMode {
	if d.shared {
		return 0o660
	}
	return 0o600
}

func socketPath(dir string, id fabric.NodeID) string {
	return filepath.Join(dir, fmt.Sprintf("node-%d.sock", id))
}

func (d *directory) socket(id fabric.NodeID) string { return socketPath(d.path, id) }

func (d *directory) lockPath(id fabric.NodeID) string {
	return filepath.Join(d.path, fmt.Sprintf("node-%d.lock", id))
}

// A NodeInfo describes the holder of a node ID.
type NodeInfo struct {
	Node    fabric.NodeID `json:"node"`
	PID     int           `json:"pid"` // in the holder's own PID namespace
	Program string        `json:"program"`
	UID     int           `json:"uid"`
	Since   time.Time     `json:"since"`
}

func (i NodeInfo) String() string {
	return fmt.Sprintf("pid %d (%s, uid %d) since %s", i.PID, i.Program, i.UID, i.Since.Format(time.DateTime))
}

// List returns the live nodes of a fabric directory, in ID order.
func List(path string) ([]NodeInfo, error) {
	switch _, err := os.Stat(filepath.Join(path, markerFile)); {
	// List itself must not make a fabric
	case errors.Is(err, unix.ENOTDIR):
		return nil, notADirectory(path)
	case errors.Is(err, fs.ErrNotExist):
		return nil, &misplaced{fmt.Sprintf("fabric directory %s: no node has attached there; start one with exn-tun up, or name the directory of those that run by --fabric or EXN_FABRIC", path), err}
	case err != nil:
		return nil, fmt.Errorf("fabric directory: %w", err)
	}
	d, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	ids, err := d.ids()
	if err != nil {
		return nil, err
	}
	live := []NodeInfo{}
	for _, id := range ids {
		if info, ok := d.holder(id); ok {
			live = append(live, info)
		}
	}
	return live, nil
}

// ids returns the node IDs that have a lock file, whether it is held or left behind. It ignores
// other files.
func (d *directory) ids() ([]fabric.NodeID, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("fabric directory: %w", err)
	}
	var ids []fabric.NodeID
	for _, e := range entries {
		s, isNode := strings.CutPrefix(e.Name(), "node-")
		s, isLock := strings.CutSuffix(s, ".lock")
		n, err := strconv.ParseUint(s, 10, 16)
		if isNode && isLock && err == nil && fabric.NodeID(n) <= fabric.MaxNodeID && strconv.Itoa(int(n)) == s {
			ids = append(ids, fabric.NodeID(n))
		}
	}
	sort.Slice(ids, func(a, b int) bool { return ids[a] < ids[b] })
	return ids, nil
}

// holder returns the holder of an ID; ok is false if there is none.
func (d *directory) holder(id fabric.NodeID) (NodeInfo, bool) {
	f, err := os.OpenFile(d.lockPath(id), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return NodeInfo{}, false
	}
	defer f.Close()
	if !isLocked(f) {
		return NodeInfo{}, false
	}
	info := NodeInfo{Node: id}
	if text, err := os.ReadFile(d.lockPath(id)); err != nil || json.Unmarshal(text, &info) != nil {
		info = NodeInfo{Program: "unknown"} // the holder is just writing the file
	}
	info.Node = id
	return info, true
}

// lockAttach makes attachments happen one at a time. It fails with fs.ErrNotExist if the directory
// is removed meanwhile.
func (d *directory) lockAttach() (unlock func(), err error) {
	f, err := d.openLock(filepath.Join(d.path, lockFile))
	if err != nil {
		return nil, fmt.Errorf("fabric directory: %w", limitError(err))
	}
	for end := time.Now().Add(attachPatience); ; time.Sleep(5 * time.Millisecond) {
		err := tryLock(f)
		if err == nil && !isNamed(f) {
			f.Close()
			return nil, fmt.Errorf("fabric directory %s: was removed: %w", d.path, fs.ErrNotExist)
		}
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("fabric directory %s: another process has been attaching for %v (lsof %s tells which): %w", d.path, attachPatience, filepath.Join(d.path, lockFile), err)
		}
	}
}

// isNamed reports whether the file's name still refers to it.
func isNamed(f *os.File) bool {
	open, err := f.Stat()
	named, missing := os.Stat(f.Name())
	return err == nil && missing == nil && os.SameFile(open, named)
}

// claim takes a node ID, or the lowest free one. The caller holds the attach lock. The returned
// file holds the ID: closing it gives the ID up.
func (d *directory) claim(want fabric.NodeID) (fabric.NodeID, *os.File, error) {
	first, last := want, want
	if want == fabric.NodeAny {
		first, last = 0, fabric.MaxNodeID
	}
	for id := first; ; id++ {
		f, err := d.openLock(d.lockPath(id))
		if err != nil {
			return 0, nil, fmt.Errorf("claim node %d: %w", id, limitError(err))
		}
		if err = tryLock(f); err == nil {
			if f, err = d.own(id, f); err == nil {
				err = d.sign(id, f)
			}
			return id, f, err
		}
		f.Close()
		if !errors.Is(err, unix.EAGAIN) {
			return 0, nil, fmt.Errorf("claim node %d: %w", id, err)
		}
		if id == last {
			info, _ := d.holder(id)
			return 0, nil, fmt.Errorf("node ID %d is taken by %v; choose another, or let the lowest free one be taken: %w", id, info, fabric.ErrInUse)
		}
	}
}

// openLock opens or makes a file for locking, with the directory's mode whatever the umask.
func (d *directory) openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, d.fileMode())
	if err == nil {
		f.Chmod(d.fileMode()) // fails if another user owns it, who has set the mode already
	}
	return f, err
}

// own replaces the lock file of a dead node of another user by one of ours, since peers check that
// a node runs as the owner of its lock file. Nobody else can claim the ID meanwhile: the caller
// holds the attach lock.
func (d *directory) own(id fabric.NodeID, f *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || int(st.Uid) == os.Geteuid() {
		return f, err
	}
	f.Close()
	err := os.Remove(d.lockPath(id))
	if err == nil {
		if f, err = d.openLock(d.lockPath(id)); err == nil {
			err = tryLock(f)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("claim node %d, which was another user's: %w", id, err)
	}
	return f, nil
}

// sign describes the holder in the lock file, and removes what a dead holder left.
func (d *directory) sign(id fabric.NodeID, f *os.File) error {
	program, _ := os.Executable()
	text, err := json.Marshal(NodeInfo{id, os.Getpid(), filepath.Base(program), os.Getuid(), time.Now().Truncate(time.Second)})
	if err == nil {
		err = errors.Join(f.Truncate(0), f.Chmod(d.fileMode()))
	}
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	if err == nil {
		if err = os.Remove(d.socket(id)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		d.abandon(id, f)
		return fmt.Errorf("claim node %d: %w", id, limitError(err))
	}
	return nil
}

// abandon gives the ID up. It removes the files first, while the lock still keeps others from
// taking the ID.
func (d *directory) abandon(id fabric.NodeID, f *os.File) {
	os.Remove(d.socket(id))
	os.Remove(d.lockPath(id))
	f.Close()
}

// tryLock locks a file as long as it is open, or fails with EAGAIN. An open file description lock
// can be queried without taking it (isLocked), so listing nodes never makes an attachment fail.
func tryLock(f *os.File) error {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
}

func isLocked(f *os.File) bool {
	l := unix.Flock_t{Type: unix.F_RDLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}
