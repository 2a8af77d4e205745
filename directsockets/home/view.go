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

// A View is a connection as its one end sees it, in the network namespace of that cookie.
type View struct {
	Net           uint64
	Local, Remote netip.AddrPort
}

// Turned is how the other end sees it, in the same namespace and where nothing translates.
func (v View) Turned() View { return View{v.Net, v.Remote, v.Local} }

// String is the view as links name it: the cookie in hex, and the ends as on the wire, IPv4 mapped.
func (v View) String() string {
	ends := make([]byte, 0, 2*endSize)
	for _, end := range []netip.AddrPort{v.Local, v.Remote} {
		a := end.Addr().As16()
		ends = binary.BigEndian.AppendUint16(append(ends, a[:]...), end.Port())
	}
	return fmt.Sprintf("%x-%x", v.Net, ends)
}

// Offer is the name of its offer in the subdirectory Offers of a fabric directory.
func (v View) Offer() string { return OfferPrefix + v.String() }

// Where connections look for their peers, and what the names begin with.
const (
	Offers      = "ds"
	OfferPrefix = "o-"
)

const endSize = 16 + 2

var errView = errors.New("not a connection's name")

// ParseView reads what String has written.
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
	Announcement = "translated" // the link that says that somebody tells of them
	prefix       = "t-"
	// life is how long it is believed what was said of a connection: its ends may be those of another later.
	life = 2 * time.Second
)

// Translations are what one registrar says of connections whose addresses are translated on the way. They
// belong to one goroutine.
type Translations struct {
	dir  string
	said []said // oldest first
}

type said struct {
	name string
	at   time.Time
}

// Translate says in a fabric directory that who looks for the other end of a connection may be told how that sees it.
func Translate(fabricDir string) (*Translations, error) {
	t := &Translations{dir: filepath.Join(fabricDir, subdirectory)}
	if err := open(t.dir); err != nil {
		return nil, err
	}
	old, _ := filepath.Glob(filepath.Join(t.dir, prefix+"*")) // the pattern is good
	for _, path := range old {                                // a crash has left them
		os.Remove(path)
	}
	return t, t.Announce()
}

// Announce says so again, if another registrar has taken that back.
func (t *Translations) Announce() error {
	if err := os.Symlink("1", filepath.Join(t.dir, Announcement)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("tell of translated addresses: %w", err)
	}
	return nil
}

// Dir is where that is said, by a link of the name Announcement.
func (t *Translations) Dir() string { return t.dir }

// Say says that two views are those of the ends of one connection.
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

// Expire takes back what is not believed any more, and says whether something is left.
func (t *Translations) Expire() (left bool) {
	const slow = time.Second // whole seconds count, of a clock that may be elsewhere in its own
	for len(t.said) > 0 && time.Since(t.said[0].at) > life+slow {
		path := filepath.Join(t.dir, t.said[0].name)
		if !believed(path) {
			os.Remove(path)
		}
		t.said = t.said[1:]
	}
	return len(t.said) > 0
}

// Close takes all back.
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

// Translates says whether somebody tells of translated addresses in a fabric directory.
func Translates(fabricDir string) bool {
	dir := filepath.Join(fabricDir, subdirectory)
	_, err := os.Readlink(filepath.Join(dir, Announcement))
	return err == nil && trusted(dir) == nil
}

// Translated is how the other end of a connection sees it, if that was said.
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

// Ask looks for the other end of a connection as who makes an offer does, for a short while, and says how that sees
// it if it is told.
func Ask(ctx context.Context, fabricDir string, v View) (other View, ok bool) {
	const patience, pause = time.Second, 5 * time.Millisecond // for a host that has much to do
	offer := filepath.Join(fabricDir, Offers, v.Offer())
	if os.Symlink("p-"+strconv.Itoa(os.Getpid())+":0", offer) != nil {
		return View{}, false // no program has used the directory, or we may not
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

// believed: a link is young enough.
func believed(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && time.Now().Unix()-int64(st.Mtim.Sec) <= int64(life/time.Second)
}
