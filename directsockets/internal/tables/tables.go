// Package tables reads the kernel's public tables of TCP sockets, and finds in /proc the processes
// that hold them.
//
//	err := tables.Each("/proc/self/net", func(s tables.Socket) bool { … })
//	pids := tables.Holders(inode)[inode]
//
// A call takes milliseconds, or more if there are many processes. So it is for commands that
// explain, not for programs that carry bytes. A user sees the holders of their own sockets, root
// sees all, and a container sees those inside it.
package tables

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Socket is a line of the tables that ss and netstat fall back to as well.
type Socket struct {
	Local, Remote netip.AddrPort
	Listens       bool
	Inode         uint64 // 0: nobody holds it any more
	UID           int
}

// Each calls f for each TCP socket of a network namespace, until f returns true. dir holds the
// namespace's tables, like /proc/self/net.
func Each(dir string, f func(Socket) bool) error {
	for _, table := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(dir, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6 here
		}
		if err != nil {
			return fmt.Errorf("look for sockets: %w", err)
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if s, ok := line(lines.Text()); ok && f(s) {
				return nil
			}
		}
	}
	return nil
}

func line(text string) (s Socket, ok bool) {
	field := strings.Fields(text)
	if len(field) < 10 {
		return s, false
	}
	local, localErr := Parse(field[1])
	remote, remoteErr := Parse(field[2])
	inode, inodeErr := strconv.ParseUint(field[9], 10, 64)
	if errors.Join(localErr, remoteErr, inodeErr) != nil {
		return s, false // the heading
	}
	const listening = "0A"
	uid, _ := strconv.Atoi(field[7]) // it is a number: the kernel wrote it
	return Socket{local, remote, field[3] == listening, inode, uid}, true
}

// Parse reads an address as in /proc/net/tcp: words of 32 bits in hex, each in
// the byte order of the machine, and the port.
func Parse(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("not an address: %q", text)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4]) // both architectures that exnet is for are little-endian
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("not an address: %q", text)
	}
	a, _ := netip.AddrFromSlice(b) // has one of the two lengths
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

// Namespace names the network namespace of a process, given as a directory of /proc. The name is
// empty if we may not see it.
func Namespace(process string) string {
	// it has ended, or is another user's
	name, _ := os.Readlink(filepath.Join(process, "ns", "net"))
	return name
}

// Inode returns the inode of the socket behind a descriptor of a process, or 0 if it is not a
// socket or we may not see it.
func Inode(pid, fd int) uint64 {
	// it is closed, or another user's
	target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return inodeOf(target)
}

func inodeOf(target string) uint64 {
	number, is := strings.CutPrefix(target, "socket:[")
	if !is {
		return 0
	}
	inode, _ := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64) // the kernel wrote it
	return inode
}

// Holders returns, for each of these sockets, the processes that hold it, as far as we can see
// them.
func Holders(inodes ...uint64) map[uint64][]int {
	holders := make(map[uint64][]int, len(inodes))
	for _, inode := range inodes {
		holders[inode] = nil
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		inode := inodeOf(target)
		if _, asked := holders[inode]; err != nil || inode == 0 || !asked {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(fd, "/")[2]) // Glob found digits
		if !slices.Contains(holders[inode], pid) {
			holders[inode] = append(holders[inode], pid)
		}
	}
	return holders
}

// Loaded reports whether a process has loaded the library.
func Loaded(pid int) bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return err == nil && strings.Contains(string(maps), "/libextds.so")
}
