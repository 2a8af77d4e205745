// Package home records in which network namespace an address lies: addresses of a fabric's
// interfaces, and addresses that the kernel's bridges and routes lead to. With it, direct sockets
// find each other across namespaces.
//
//	r, err := home.Register("/run/exn", cookie)    // exn-tun up and bridge, of a namespace
//	err = r.Hold([]netip.Addr{…})                  // whenever they change
//	err = r.Close()
//
// An address is a symbolic link in the subdirectory "addresses" of the fabric directory. Its name
// is the address in 32 hex digits (IPv4 as mapped). It points to the cookie of the network
// namespace (SO_NETNS_COOKIE) in hex. A cookie is never reused while the machine runs, so leftovers
// of a crash mislead nobody: either the address is in that namespace, or no connection to it is
// found there.
//
// Where addresses are translated on the way, the ends of a connection know it by different ones. A
// registrar sees the offers of connections and what the kernel makes of them. It tells each end how
// the other sees the connection:
//
//	t, err := home.Translate("/run/exn")
//	err = t.Say(View{…}, View{…})                  // for as long as an offer is believed
//
// # Trust
//
// A process that may register an address could get the bytes of its connections. So the
// subdirectory must belong to root or to the asking user, and nobody else may write there.
//
// # What it is not
//
// It does not claim addresses. Before an address is registered, package arp on the fabric, or
// otherwise package bridge, makes sure that no two nodes hold it.
package home

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const subdirectory = "addresses"

// ErrUnknown means that an address is not registered.
var ErrUnknown = errors.New("not an address of this fabric")

// A Registration is what was registered for one namespace. It belongs to one goroutine.
type Registration struct {
	dir    string
	cookie string
	held   map[string]bool // names of links
}

// Register prepares to register addresses of interfaces in a network namespace.
func Register(fabricDir string, cookie uint64) (*Registration, error) {
	dir := filepath.Join(fabricDir, subdirectory)
	if err := open(dir); err != nil {
		return nil, err
	}
	return &Registration{dir, strconv.FormatUint(cookie, 16), map[string]bool{}}, nil
}

// open makes the subdirectory if it is missing, and checks its owner.
func open(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755) // whatever the umask: the fabric directory decides who may enter
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("register addresses: %w", err)
	}
	return trusted(dir)
}

// Hold registers these addresses and no others. It skips link-local ones, which mean something else
// on each link. After an error it can be called again.
func (r *Registration) Hold(addresses []netip.Addr) error {
	want := make(map[string]bool)
	for _, a := range addresses {
		if !a.IsLinkLocalUnicast() {
			want[name(a)] = true
		}
	}
	var errs []error
	for n := range r.held {
		if !want[n] {
			errs = append(errs, r.remove(n))
			delete(r.held, n)
		}
	}
	for n := range want {
		if !r.held[n] {
			err := r.put(n)
			errs = append(errs, err)
			if err == nil {
				r.held[n] = true
			}
		}
	}
	return errors.Join(errs...)
}

// put makes a link. It replaces one that a crash has left.
func (r *Registration) put(n string) error {
	path := filepath.Join(r.dir, n)
	made := path + "-" + r.cookie
	os.Remove(made) // a crash may have left it
	err := os.Symlink(r.cookie, made)
	if errors.Is(err, fs.ErrNotExist) { // another process removed the subdirectory when it ended
		if err = open(r.dir); err == nil {
			err = os.Symlink(r.cookie, made)
		}
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return fmt.Errorf("register address: %w", err)
	}
	return nil
}

// remove removes a link, unless it belongs to another namespace by now.
func (r *Registration) remove(n string) error {
	path := filepath.Join(r.dir, n)
	to, err := os.Readlink(path)
	if err == nil && to == r.cookie {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close removes everything.
func (r *Registration) Close() error {
	err := r.Hold(nil)
	// The last one removes the subdirectory; for others it is not empty.
	if e := os.Remove(r.dir); e != nil && !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, unix.ENOTEMPTY) {
		err = errors.Join(err, e)
	}
	return err
}

// Find returns the cookie of the network namespace that has an address.
func Find(fabricDir string, a netip.Addr) (cookie uint64, err error) {
	dir := filepath.Join(fabricDir, subdirectory)
	to, err := os.Readlink(filepath.Join(dir, name(a)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%v: %w", a, ErrUnknown)
	}
	if err == nil {
		err = trusted(dir)
	}
	if err == nil {
		cookie, err = strconv.ParseUint(to, 16, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("look up address %v: %w", a, err)
	}
	return cookie, nil
}

// trusted returns an error if this process should not believe a directory.
func trusted(dir string) error {
	const groupAndOthers = 0o022
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&groupAndOthers != 0 || st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory in which only root or this user may write: remove it, and start the nodes of this fabric again", dir)
	}
	return nil
}

func name(a netip.Addr) string {
	b := a.As16()
	return hex.EncodeToString(b[:])
}
