package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"exnet/directsockets/internal/lane"
	"exnet/directsockets/internal/tables"
	"exnet/directsockets/launch"
	"exnet/directsockets/status"
	"exnet/fabric/dir"
	"exnet/fabric/directory"
)

// An Acceptor is a process that may accept the connection.
type Acceptor struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	UID     int    `json:"uid"`
	Fabric  string `json:"fabric,omitempty"`
	Upgrade bool   `json:"upgrade"`
	Why     string `json:"why,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
}

func (a Acceptor) String() string {
	return fmt.Sprintf("%s (process %d, user %d)", a.Program, a.PID, a.UID)
}

func (a Acceptor) no(why, remedy string) Acceptor {
	a.Why, a.Remedy = fmt.Sprintf("%v %s", a, why), remedy
	return a
}

// acceptors returns the processes that hold these sockets. It fails if some of them cannot be seen.
func acceptors(inodes []uint64, uid int) (pids []int, err error) {
	for _, held := range tables.Holders(inodes...) {
		for _, pid := range held {
			if !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("%w: it belongs to user %d; ask as that user or as root", ErrHidden, uid)
	}
	if child := hiddenChild(pids); child != 0 {
		return nil, fmt.Errorf("%w: process %d, which one of those that do has started, may too; ask as root", ErrHidden, child)
	}
	slices.Sort(pids)
	// A service manager holds the socket for the service that it starts, and accepts nothing
	// itself.
	others := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return program(pid) == "systemd" })
	if len(others) > 0 {
		pids = others
	}
	return pids, nil
}

// hiddenChild is a child of these processes whose descriptors cannot be seen, 0 if there is none.
func hiddenChild(pids []int) int {
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range all {
		if _, err := os.ReadDir(filepath.Join(dir, "fd")); !errors.Is(err, fs.ErrPermission) {
			continue
		}
		child, _ := strconv.Atoi(filepath.Base(dir)) // Glob found digits
		if slices.Contains(pids, parent(child)) {
			return child
		}
	}
	return 0
}

// program is the name of a process.
func program(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // it has ended
	return strings.ToValidUTF8(strings.TrimSpace(string(name)), "?")
}

// judge asks all that may accept.
func (v Verdict) judge(pids []int, fabric string) (Verdict, error) {
	for _, pid := range pids {
		a := Acceptor{PID: pid, Program: program(pid), UID: v.UID}
		user, userErr := directory.Of(pid)
		if userErr == nil {
			a.UID = int(user.UID)
		}
		p, found := status.Of(pid)
		if !found {
			p, found = announced(pid, user)
		}
		a.Fabric = p.Fabric
		a, err := a.judge(p, found, user, userErr, fabric)
		if errors.Is(err, fs.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return v, err
		}
		v.Acceptors = append(v.Acceptors, a)
	}
	if len(v.Acceptors) == 0 {
		return v, fmt.Errorf("%w: those that did have ended; ask again", ErrHidden)
	}
	refusing := slices.DeleteFunc(slices.Clone(v.Acceptors), func(a Acceptor) bool { return a.Upgrade })
	first := append(slices.Clone(refusing), v.Acceptors...)[0]
	v.PID, v.Program, v.UID, v.Fabric = first.PID, first.Program, first.UID, first.Fabric
	if len(refusing) > 0 {
		v.Why, v.Remedy = first.Why, first.Remedy
		if n := len(v.Acceptors); n > 1 {
			v.Why = fmt.Sprintf("%s; that holds for %d of the %d processes that accept there", v.Why, len(refusing), n)
		}
		return v, nil
	}
	if err := directory.Check(fabric, directory.Self()); err != nil {
		why, remedy := words(err)
		return v.no(fmt.Sprintf("this user cannot use the fabric directory %s: %s", fabric, why), remedy)
	}
	v.Upgrade = true
	return v, nil
}

// announced describes a process with the library that has not published anything yet, for example
// because it inherited its listening socket and accepted nothing. It returns what the process that
// forked it has published, and otherwise what its environment tells.
func announced(pid int, user directory.User) (p status.Process, found bool) {
	if !tables.Loaded(pid) {
		return p, false
	}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // it has ended
	for ancestor := parent(pid); ancestor > 1; ancestor = parent(ancestor) {
		if same, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", ancestor)); err != nil || same != exe {
			break
		}
		if p, found = status.Of(ancestor); found {
			p.PID, p.Sockets = pid, nil
			return p, true
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return p, false
	}
	value := func(name string) (v string) {
		for e := range strings.SplitSeq(string(text), "\x00") {
			if n, text, _ := strings.Cut(e, "="); n == name {
				v = text
			}
		}
		return v
	}
	if off := value("EXN_DS"); off == "off" || off == "0" {
		return p, false
	}
	p = status.Process{PID: pid, Program: program(pid), Lane: lane.Version, Fabric: value("EXN_FABRIC"), Group: value(dir.PeersVariable) == dir.Group.String()}
	if p.Fabric == "" && user.UID == 0 {
		p.Fabric = "/run/exn"
	}
	return p, p.Fabric != "" // else nobody knows it before it says so
}

// parent is that of a process, 0 if it has ended.
func parent(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it has ended
	for line := range strings.Lines(string(text)) {
		if number, is := strings.CutPrefix(line, "PPid:"); is {
			parent, _ := strconv.Atoi(strings.TrimSpace(number)) // the kernel wrote it
			return parent
		}
	}
	return 0
}

// judge goes through what both libraries would.
func (a Acceptor) judge(p status.Process, found bool, user directory.User, userErr error, fabric string) (Acceptor, error) {
	switch {
	case !found && !tables.Loaded(a.PID):
		if all := obstacles(a.PID); len(all) > 0 {
			return a.no("does not use the library: it "+strings.Join(all, ", and "),
				"if it only hands bytes on, as docker-proxy does for a published port, connect to the server behind it"), nil
		}
		return a.no("does not use the library", "start it by exn-tun run -- "+a.Program), nil
	case !found:
		return a.no("has the library and does not use it: EXN_DS=off is set, or it has opened no connection yet", status.Reason(1).Remedy()), nil
	case errors.Is(p.Err, status.ErrVersion), p.Err == nil && p.Lane != lane.Version:
		return a.no("uses another version of the library", status.Reason(6).Remedy()), nil
	case p.Err != nil:
		return a, fmt.Errorf("%v: %w", a, p.Err)
	case p.Fabric == "":
		return a.no("has no fabric directory", status.Reason(2).Remedy()), nil
	case !p.In(fabric):
		return a.no(fmt.Sprintf("is a peer not in this fabric directory: it uses %s, this is %s", p.Fabric, fabric),
			"start both with the same --fabric, as in exn-tun run --fabric "+p.Fabric+" -- CMD"), nil
	case userErr != nil:
		return a, fmt.Errorf("%v: %w: %w; ask as root", a, ErrHidden, userErr)
	}
	if p.Group {
		user.Peers = dir.Group
	}
	if err := directory.Check(p.Fabric, user); err != nil {
		why, remedy := words(err)
		return a.no(fmt.Sprintf("cannot use its fabric directory %s: %s", p.Fabric, why), remedy), nil
	}
	if _, err := os.Stat(fabric); errors.Is(err, fs.ErrNotExist) && a.UID != os.Geteuid() {
		return a.no(fmt.Sprintf("is another user, and %s does not exist yet: only the user who makes it could use it", fabric), groupRemedy), nil
	}
	if a.UID != os.Geteuid() && (!p.Group || dir.Policy() != dir.Group) {
		return a.no(fmt.Sprintf("is another user than this one, user %d, and only with EXN_PEERS=group at both they meet", os.Geteuid()), groupRemedy), nil
	}
	if !alike(a.PID) {
		return a.no("is in a user namespace that maps users otherwise than this one", "run both in one: else neither can prove who it is"), nil
	}
	a.Upgrade = true
	return a, nil
}

const groupRemedy = "make a directory that both may use by a group (install -d -m 2770 -g GROUP DIR), and start both with EXN_PEERS=group and --fabric DIR"

// words are those of an error of package directory, which begin with the directory's name.
func words(err error) (why, remedy string) {
	if e, ok := errors.AsType[*directory.Error](err); ok {
		why = e.Why
		if strings.HasSuffix(e.Path, "/"+directory.Sockets) {
			why = e.Path + " " + e.Why
		}
		return why, e.Remedy
	}
	return err.Error(), status.Reason(2).Remedy()
}

// alike: a process is in our user namespace, or in one that maps users and groups as ours does, of
// which the kernel then shows each ID as itself.
func alike(pid int) bool {
	ours, err := os.Readlink("/proc/self/ns/user")
	theirs, theirErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil || theirErr != nil || ours == theirs {
		return true
	}
	for _, name := range []string{"uid_map", "gid_map"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) != 3 || f[0] != f[1] {
				return false
			}
		}
	}
	return true
}

// obstacles are why a process' program could not use the library.
func obstacles(pid int) []string {
	path := fmt.Sprintf("/proc/%d/exe", pid)
	p, err := launch.Find(path, nil)
	if err != nil {
		return nil // it may not be looked at
	}
	all := p.Obstacles(os.Getuid(), os.Getgid())
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], path+" ")
	}
	return all
}
