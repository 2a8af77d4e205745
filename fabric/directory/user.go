package directory

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/fabric/dir"
)

// A User is what the kernel goes by when a process opens a file.
type User struct {
	UID, GID uint32
	Groups   []uint32
	Override bool // it has CAP_DAC_OVERRIDE: modes do not bind it
	Peers    dir.Peers
	Root     string // where its root directory is seen, empty: as ours
	self     bool
}

// Self is this process.
func Self() User {
	return User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Peers: dir.Policy(), self: true}
}

// Of is another process, with the mounts that it sees. Whose programs it meets only it can tell:
// Peers is the default. It fails if this process may not look at it.
func Of(pid int) (User, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return User{}, fmt.Errorf("look at the user of process %d: %w", pid, err)
	}
	u := User{Root: fmt.Sprintf("/proc/%d/root", pid)}
	numbers := func(text string) (all []uint32) {
		for _, f := range strings.Fields(text) {
			n, err := strconv.ParseUint(f, 10, 32)
			if err != nil {
				return nil
			}
			all = append(all, uint32(n))
		}
		return all
	}
	const fileSystem = 3 // of real, effective, saved and file system ID
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Uid":
			if n := numbers(value); len(n) > fileSystem {
				u.UID = n[fileSystem]
			}
		case "Gid":
			if n := numbers(value); len(n) > fileSystem {
				u.GID = n[fileSystem]
			}
		case "Groups":
			u.Groups = numbers(value)
		case "CapEff":
			bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			u.Override = err == nil && bits&(1<<unix.CAP_DAC_OVERRIDE) != 0
		}
	}
	ours, ourErr := os.Readlink("/proc/self/ns/user")
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return User{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	u.Override = u.Override && ourErr == nil && ours == theirs // else for files of its own users only
	return u, nil
}

// open opens a path for looking only, in the root directory of the process.
func (u User) open(path string, how int) (int, error) {
	mode := unix.O_PATH | unix.O_CLOEXEC | how
	if u.Root == "" {
		return unix.Open(path, mode, 0)
	}
	root, err := unix.Open(u.Root, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: uint64(mode), Resolve: unix.RESOLVE_IN_ROOT})
	if err == unix.ENOSYS { // Linux before 5.6, where absolute links lead to our root
		fd, err = unix.Openat(root, strings.TrimLeft(path, "/"), mode, 0)
	}
	return fd, err
}

// What may be allowed, as in modes.
const (
	read   = 4
	write  = 2
	search = 1
)

// may says whether the process may do that in a directory.
func (u User) may(fd int, st *unix.Stat_t, want uint32) bool {
	if u.self { // the kernel knows all reasons
		const flags = unix.AT_EMPTY_PATH | unix.AT_EACCESS
		err := unix.Faccessat2(fd, "", want, flags)
		if err == unix.ENOSYS || err == unix.EINVAL { // Linux before 5.8
			err = unix.Access(fmt.Sprintf("/proc/self/fd/%d", fd), want)
		}
		return err == nil || err == unix.EROFS // which is told as what it is
	}
	if u.Override {
		return true
	}
	member := st.Gid == u.GID || slices.Contains(u.Groups, st.Gid)
	switch {
	case st.Uid == u.UID:
		return st.Mode>>6&want == want
	case u.listed(fd, st, want) == yes:
		return true
	case u.listed(fd, st, want) == no:
		return false
	case member:
		return st.Mode>>3&want == want
	}
	return st.Mode&want == want
}

// What an access control list says.
const (
	nothing = iota // there is none
	yes
	no
)

// listed asks the access control list of a directory (acl(5)), without its owner's entry, which the
// mode repeats.
func (u User) listed(fd int, st *unix.Stat_t, want uint32) int {
	const user, group, members, mask, others = 0x02, 0x04, 0x08, 0x10, 0x20
	const headSize, entrySize = 4, 8
	var text [headSize + 64*entrySize]byte
	n, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", fd), "system.posix_acl_access", text[:])
	if err != nil || n < headSize {
		return nothing
	}
	limit, rest := uint32(7), uint32(0)
	var named, groups []uint32
	for b := text[headSize:n]; len(b) >= entrySize; b = b[entrySize:] {
		tag, bits, id := binary.LittleEndian.Uint16(b), uint32(binary.LittleEndian.Uint16(b[2:])), binary.LittleEndian.Uint32(b[4:])
		switch {
		case tag == mask:
			limit = bits
		case tag == others:
			rest = bits
		case tag == user && id == u.UID:
			named = append(named, bits)
		case tag == members && (id == u.GID || slices.Contains(u.Groups, id)),
			tag == group && (st.Gid == u.GID || slices.Contains(u.Groups, st.Gid)):
			groups = append(groups, bits)
		}
	}
	answer := func(may bool) int {
		if may {
			return yes
		}
		return no
	}
	enough := func(bits uint32) bool { return bits&limit&want == want }
	switch {
	case len(named) > 0:
		return answer(enough(named[0]))
	case len(groups) > 0:
		return answer(slices.ContainsFunc(groups, enough))
	}
	return answer(rest&want == want)
}
