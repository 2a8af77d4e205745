// Package directory decides which directories may be a fabric directory, and which processes may
// use one.
//
//	err := directory.Check("/run/exn", directory.Self())
//	user, err := directory.Of(pid)
//	err = directory.Check("/run/exn", user) // as that process sees it
//
// # The rule
//
// Programs trust what they find in a fabric directory, so a process uses one only if
//
//   - package exnet/fabric/dir trusts it: it belongs to the user of the process and nobody else
//     gets in, or EXN_PEERS=group is set and it is a group's; and it is no symbolic link,
//   - the process may read, write and search there, and the file system is not read-only.
//
// The same holds for its subdirectory ds, where EXT-DS meets, once that exists. A directory that
// does not exist is made with mode 0700 by the first process that needs it, if its parent exists.
//
// The C library has the rule in preload/directory.c, with the same results: a test in cmd/exn-tun
// plays both.
//
// # What it is not
//
// It opens and changes nothing, and a directory that is good now may change at any moment. Programs
// still check what they have opened.
package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"exnet/fabric/dir"
)

// Sockets is the subdirectory in which EXT-DS meets.
const Sockets = "ds"

// MaxPath is the longest path in bytes: the library has room for so much (CONFIG_PATH in
// preload/config.h, with a final NUL).
const MaxPath = 3823

// An Error says why a process cannot use a directory.
type Error struct {
	Path   string
	Why    string // a clause, such as "everybody may write there"
	Remedy string // an order, such as "chmod 0700 it"
	Err    error  // of the kernel, or nil
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("fabric directory %s: %s; %s", shortened(e.Path), e.Why, e.Remedy)
}

// Unwrap gives the error of the kernel.
func (e *Error) Unwrap() error { return e.Err }

// shortened keeps an error in one line that a terminal can show.
func shortened(path string) string {
	const most = 200
	if len(path) <= most {
		return path
	}
	return path[:most] + "…"
}

const (
	groupRemedy = "name another by --fabric or EXN_FABRIC, or let several users share one by a group (install -d -m 2770 -g GROUP DIR, and EXN_PEERS=group)"
)

// trusted says why a process must not trust a directory, whatever it may do there, or nil. It is
// the rule on owner and mode.
func (u User) trusted(path string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return &Error{path, "is a symbolic link", "name what it leads to", unix.ENOTDIR}
	default:
		return &Error{path, "is not a directory", "name another by --fabric or EXN_FABRIC", unix.ENOTDIR}
	}
	why, remedy := dir.Rule(st, u.UID, u.Peers)
	if why == "" {
		return nil
	}
	return &Error{path, why, remedy, dir.ErrUntrusted}
}

// Check says why a process cannot use a directory, as an [*Error], or nil.
func Check(path string, u User) error {
	if path == "" {
		return &Error{path, "it has no name", "name one by --fabric or EXN_FABRIC", fs.ErrNotExist}
	}
	if len(path) > MaxPath {
		return &Error{path, fmt.Sprintf("its path has %d bytes, and %d is the most", len(path), MaxPath), "choose a shorter one", unix.ENAMETOOLONG}
	}
	err := u.reach(path)
	if err != nil {
		return err
	}
	found, err := u.check(path)
	if err != nil {
		return err
	}
	if !found {
		return u.checkParent(path)
	}
	_, err = u.check(filepath.Join(path, Sockets))
	var e *Error
	if errors.As(err, &e) && (e.Remedy == groupRemedy || e.Remedy == dir.GroupRemedy) {
		e.Remedy = "remove it, so that it is made anew with the mode of the directory above it"
	}
	return err
}

// check looks at one directory. Not found is no error.
func (u User) check(path string) (found bool, err error) {
	fd, err := u.open(path, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &Error{path, "cannot be opened: " + err.Error(), "name another by --fabric or EXN_FABRIC", err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, &Error{path, "cannot be looked at: " + err.Error(), "name another by --fabric or EXN_FABRIC", err}
	}
	if err := u.trusted(path, &st); err != nil {
		return true, err
	}
	if !u.may(fd, &st, read|write|search) {
		return true, &Error{path, fmt.Sprintf("user %d may not write there (mode %04o, user %d, group %d)", u.UID, st.Mode&0o7777, st.Uid, st.Gid), groupRemedy, fs.ErrPermission}
	}
	return true, u.writable(path, fd)
}

// writable says whether the file system is read-only there, as it is for many services.
func (u User) writable(path string, fd int) error {
	var on unix.Statfs_t
	if unix.Fstatfs(fd, &on) == nil && on.Flags&unix.ST_RDONLY != 0 {
		return &Error{path, "is on a read-only file system", "mount it writable; a service of systemd needs ReadWritePaths=", unix.EROFS}
	}
	return nil
}

// checkParent says whether a directory that does not exist could be made.
func (u User) checkParent(path string) error {
	parent := filepath.Dir(filepath.Clean(path))
	fd, err := u.open(parent, 0)
	if err != nil {
		return &Error{path, fmt.Sprintf("does not exist, and neither does %s", parent), "make it: install -d -m 0700 " + shortened(path), err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &Error{path, fmt.Sprintf("cannot be made, since %s is not a directory", parent), "name another by --fabric or EXN_FABRIC", unix.ENOTDIR}
	}
	if !u.may(fd, &st, write|search) {
		return &Error{path, fmt.Sprintf("does not exist, and user %d may not make it in %s", u.UID, parent), "make it as root: install -d -m 0700 -o USER " + shortened(path), fs.ErrPermission}
	}
	return u.writable(path, fd)
}

// reach says which directory on the way a process may not search.
func (u User) reach(path string) error {
	var above []string
	for p := filepath.Dir(filepath.Clean(path)); ; p = filepath.Dir(p) {
		above = append(above, p)
		if p == "/" || p == "." {
			break
		}
	}
	for i := len(above) - 1; i >= 0; i-- {
		fd, err := u.open(above[i], 0)
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil // checkParent says so
		case errors.Is(err, unix.ENOTDIR):
			return &Error{path, fmt.Sprintf("%s is not a directory", above[i]), "name another by --fabric or EXN_FABRIC", err}
		case err != nil:
			return &Error{path, fmt.Sprintf("user %d cannot get to it: %s: %v", u.UID, above[i], err), groupRemedy, err}
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		may := err == nil && (st.Mode&unix.S_IFMT != unix.S_IFDIR || u.may(fd, &st, search))
		unix.Close(fd)
		if !may {
			return &Error{path, fmt.Sprintf("user %d may not search %s", u.UID, above[i]), groupRemedy, fs.ErrPermission}
		}
	}
	return nil
}
