package home

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A View is a connection as one of its ends sees it. Net is the cookie of that end's network
// namespace.
type View struct {
	Net           uint64
	Local, Remote netip.AddrPort
}

// Turned returns the other end's view, if it is in the same namespace and nothing translates
// addresses.
func (v View) Turned() View { return View{v.Net, v.Remote, v.Local} }

// String returns the view as links name it: the cookie in hex, and the ends in wire format, IPv4
// mapped.
func (v View) String() string {
	ends := make([]byte, 0, 2*endSize)
	for _, end := range []netip.AddrPort{v.Local, v.Remote} {
		a := end.Addr().As16()
		ends = binary.BigEndian.AppendUint16(append(ends, a[:]...), end.Port())
	}
	return fmt.Sprintf("%x-%x", v.Net, ends)
}

// Offer returns the name of the view's offer in the subdirectory Offers of a fabric directory.
func (v View) Offer() string { return OfferPrefix + v.String() }

// The subdirectory in which connections look for their peers, and the prefix of names there.
const (
	Offers      = "ds"
	OfferPrefix = "o-"
)

const endSize = 16 + 2

var errView = errors.New("not a connection's name")

// ParseView parses the result of String.
func ParseView(text string) (v View, err error) {
	cookie, ends, _ := strings.Cut(text, "-")
	v.Net, err = strconv.ParseUint(cookie, 16, 64)
	b, hexErr := hex.DecodeString(ends)
	if err != nil || hexErr != nil || v.Net == 0 || len(b) != 2*endSize {
		return View{}, errView
	}
	end := func(b []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:]))
	}
	v.Local, v.Remote = end(b), end(b[endSize:])
	if v.Local.Port() == 0 || v.Remote.Port() == 0 || v.String() != text {
		return View{}, errView
	}
	return v, nil
}

const (
	Announcement = "translated" // link that says that a process reports translations
	prefix       = "t-"
	// life is how long a translation is believed. Later its ends may be those of another
	// connection.
	life = 2 * time.Second
)

// Translations are what one registrar says about connections whose addresses are translated on the
// way. They belong to one goroutine.
type Translations struct {
	dir  string
	said []said // oldest first
}

type said struct {
	name string
	at   time.Time
}

// Translate announces in a fabric directory that ends may be told how the other end sees their
// connection.
func Translate(fabricDir string) (*Translations, error) {
	t := &Translations{dir: filepath.Join(fabricDir, subdirectory)}
	if err := open(t.dir); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(filepath.Join(t.dir, prefix+"*")) // the pattern is valid
	for _, path := range old {                                // left by a crash
		os.Remove(path)
	}
	return t, t.Announce()
}

// Announce announces it again, if another registrar has removed the announcement.
func (t *Translations) Announce() error {
	if err := os.Symlink("1", filepath.Join(t.dir, Announcement)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("tell of translated addresses: %w", err)
	}
	return nil
}

// Dir returns the directory of the announcement, a link named Announcement.
func (t *Translations) Dir() string { return t.dir }

// Say records that two views are of one connection.
func (t *Translations) Say(a, b View) error {
	return errors.Join(t.put(a, b), t.put(b, a))
}

func (t *Translations) put(from, to View) error {
	name := prefix + from.String()
	path := filepath.Join(t.dir, name)
	os.Remove(path)
	if err := os.Symlink(to.String(), path); err != nil {
		return fmt.Errorf("tell of a translated address: %w", err)
	}
	t.said = append(t.said, said{name, time.Now()})
	return nil
}

// Expire removes what is no longer believed, and reports whether something is left.
func (t *Translations) Expire() (left bool) {
	// times count in whole seconds, by a clock that may differ by part of one
	const slow = time.Second
	for len(t.said) > 0 && time.Since(t.said[0].at) > life+slow {
		path := filepath.Join(t.dir, t.said[0].name)
		if !believed(path) {
			os.Remove(path)
		}
		t.said = t.said[1:]
	}
	return len(t.said) > 0
}

// Close removes everything.
func (t *Translations) Close() error {
	for _, s := range t.said {
		os.Remove(filepath.Join(t.dir, s.name))
	}
	err := os.Remove(filepath.Join(t.dir, Announcement))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Translates reports whether a process reports translations in a fabric directory.
func Translates(fabricDir string) bool {
	dir := filepath.Join(fabricDir, subdirectory)
	_, err := os.Readlink(filepath.Join(dir, Announcement))
	return err == nil && trusted(dir) == nil
}

// Translated returns the other end's view of a connection, if one is recorded.
func Translated(fabricDir string, v View) (other View, ok bool) {
	dir := filepath.Join(fabricDir, subdirectory)
	path := filepath.Join(dir, prefix+v.String())
	to, err := os.Readlink(path)
	if err != nil || trusted(dir) != nil || !believed(path) {
		return View{}, false
	}
	other, err = ParseView(to)
	return other, err == nil
}

// Ask looks for the other end of a connection for a short while, like a process that makes an
// offer. It returns the other end's view if it is told one.
func Ask(ctx context.Context, fabricDir string, v View) (other View, ok bool) {
	const patience, pause = time.Second, 5 * time.Millisecond // long enough for a busy host
	offer := filepath.Join(fabricDir, Offers, v.Offer())
	if os.Symlink("p-"+strconv.Itoa(os.Getpid())+":0", offer) != nil {
		return View{}, false // no program has used the directory, or we may not write there
	}
	defer os.Remove(offer)
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for ctx.Err() == nil {
		if other, ok = Translated(fabricDir, v); ok {
			break
		}
		time.Sleep(pause)
	}
	return other, ok
}

// believed reports whether a link is young enough.
func believed(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && time.Now().Unix()-int64(st.Mtim.Sec) <= int64(life/time.Second)
}
