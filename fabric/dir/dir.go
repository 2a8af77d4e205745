// Package dir determines the fabric directory, and judges whether it may be used.
//
//	path, err := dir.Default()
//	err = dir.Judge(path, dir.Policy())   // looks only
//	f, err := dir.Open(path, dir.Policy()) // makes it if it is missing
//
// Processes that share a fabric directory trust each other: a process that gets in can pass
// descriptors to the others and have its memory mapped. So the directory must belong to the user,
// and nobody else may enter it. A group may share one only if the operator asks for that
// (EXN_PEERS=group).
//
// The library (directsockets/preload/directory.c) applies the same rule.
package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Peers determines whose programs may meet in a fabric directory.
type Peers int

const (
	// SameUser is the default: only programs of the user that the directory belongs to.
	SameUser Peers = iota
	// Group admits programs of different users who share the directory by its group.
	Group
)

// PeersVariable is the environment variable that Policy reads.
const PeersVariable = "EXN_PEERS"

func (p Peers) String() string {
	if p == Group {
		return "group"
	}
	return "same-user"
}

// ParsePeers reads what String writes. The empty text is the default.
func ParsePeers(text string) (Peers, error) {
	switch text {
	case "", "same-user":
		return SameUser, nil
	case "group":
		return Group, nil
	}
	return SameUser, fmt.Errorf("%q: write same-user or group", text)
}

// Policy returns the setting of the environment. For an unknown value it returns the default, which
// is the stricter one.
func Policy() Peers {
	p, _ := ParsePeers(os.Getenv(PeersVariable))
	return p
}

// ErrNone means that there is no default directory.
var ErrNone = errors.New("no fabric directory: neither XDG_RUNTIME_DIR nor HOME names an absolute path; set EXN_FABRIC")

// ErrUntrusted is wrapped by the errors of Judge and Open for a directory that others can enter.
var ErrUntrusted = errors.New("fabric directory not trusted")

// Default returns the fabric directory to use when none is named: EXN_FABRIC, else /run/exn for
// root, else exn in XDG_RUNTIME_DIR, else .exn in the home directory. It is never below /tmp, where
// another user could make it first.
func Default() (string, error) {
	if d := os.Getenv("EXN_FABRIC"); d != "" {
		return d, nil
	}
	if os.Geteuid() == 0 {
		return "/run/exn", nil
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		return filepath.Join(d, "exn"), nil
	}
	if d := os.Getenv("HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, ".exn"), nil
	}
	return "", ErrNone
}

// Judge returns why this process would not use a directory, with the remedy, or nil if it would. It
// makes nothing. For a missing directory the error wraps fs.ErrNotExist.
func Judge(path string, peers Peers) error {
	f, err := look(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return JudgeFile(f, peers)
}

// Open makes the directory with mode 0700 if it is missing, and opens it. Callers should then go
// through the descriptor, because the upper parts of the path may change.
func Open(path string, peers Peers) (*os.File, error) {
	if err := os.Mkdir(strings.TrimRight(path, "/"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("fabric directory: %w", err)
	}
	f, err := look(path)
	if err != nil {
		return nil, err
	}
	if err := JudgeFile(f, peers); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// look opens a directory. The last part of the path must not be a symbolic link.
func look(path string) (*os.File, error) {
	plain := strings.TrimRight(path, "/") // with a trailing slash, a link would be followed
	fd, err := unix.Open(plain, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), plain), nil
	}
	if st, e := os.Lstat(plain); e == nil {
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			return nil, fmt.Errorf("%w: %s is a symbolic link; name what it leads to", ErrUntrusted, path)
		case !st.IsDir():
			return nil, fmt.Errorf("%w: %s is not a directory; name another: %w", ErrUntrusted, path, unix.ENOTDIR)
		}
	}
	return nil, fmt.Errorf("fabric directory: %w", &fs.PathError{Op: "open", Path: path, Err: err})
}

// JudgeFile judges an open directory.
func JudgeFile(f *os.File, peers Peers) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("fabric directory %s: %w", f.Name(), os.NewSyscallError("fstat", err))
	}
	if why, remedy := Rule(&st, uint32(os.Geteuid()), peers); why != "" {
		return fmt.Errorf("%w: %s %s; %s", ErrUntrusted, f.Name(), why, remedy)
	}
	return nil
}

// GroupRemedy is the remedy that Rule returns for a directory of another user.
const GroupRemedy = "name your own by EXN_FABRIC, or share one with a group (chmod 2770, and EXN_PEERS=group for all)"

// Rule judges owner and mode. It returns why a process with this effective user ID does not trust a
// directory, as a clause without its subject, and a remedy. Both are empty if the process trusts
// it.
func Rule(st *unix.Stat_t, euid uint32, peers Peers) (why, remedy string) {
	const group, groupWrites, others = 0o070, 0o020, 0o007
	mode, own := st.Mode&0o7777, st.Uid == euid
	switch {
	case mode&others != 0:
		return fmt.Sprintf("lets everyone in (mode %04o), and whoever gets in is trusted", mode), "chmod 0700 it (or 2770 for a group, with EXN_PEERS=group)"
	case peers == SameUser && !own:
		return fmt.Sprintf("belongs to uid %d, not to uid %d", st.Uid, euid), GroupRemedy
	case peers == SameUser && mode&group != 0: // an access control list shows there, too
		return fmt.Sprintf("lets others in by its group or an access control list (mode %04o)", mode), "chmod 0700 it, or set EXN_PEERS=group"
	case !own && st.Uid != 0 && mode&groupWrites == 0:
		return fmt.Sprintf("belongs to uid %d, and its group may not write it", st.Uid), "name your own by EXN_FABRIC, or chmod 2770 it"
	}
	return "", ""
}
