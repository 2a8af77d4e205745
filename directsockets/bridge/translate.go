package bridge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/internal/diag"
	"exnet/exn/netns"
)

// A translator tells the ends of connections whose addresses are translated on the way how the
// other end sees them. The ends' offers are the questions. The whole process has to be in our
// network namespace, not only the thread of Run.
type translator struct {
	fabricDir string
	mine      uint64
	log       *slog.Logger
	said      *home.Translations
	events    *os.File // inotify
	offers    uint32   // the watch on the directory of offers; 0: none yet

	mu    sync.Mutex
	owner map[netip.Addr]uint64 // the namespace of each address, as registered
	paths map[uint64]string     // where namespaces are found

	searched time.Time // when a namespace was last searched

	waiting  []question              // in the order in which they are due
	answered map[home.View]time.Time // recently answered
	tidy     time.Time               // when to forget old answers; zero: there are none
	troubled bool                    // a failure was logged
}

// A question is an offer that was made.
type question struct {
	of  home.View
	due time.Time
}

const (
	board = "board-1"
	soon  = time.Second // how long a question is not answered again
)

// openTranslator begins to listen for offers.
func openTranslator(fabricDir string, mine uint64, log *slog.Logger) (*translator, error) {
	said, err := home.Translate(fabricDir)
	if err != nil {
		return nil, err
	}
	t := &translator{fabricDir: fabricDir, mine: mine, log: log, said: said, answered: make(map[home.View]time.Time)}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		t.events = os.NewFile(uintptr(fd), "inotify")
		_, err = unix.InotifyAddWatch(fd, fabricDir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	}
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, said.Dir(), unix.IN_DELETE|unix.IN_ONLYDIR)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for offers in %s: %w", fabricDir, err), t.close())
	}
	t.watch()
	return t, nil
}

// watch listens in the directory of offers, if it exists.
func (t *translator) watch() {
	raw, err := t.events.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { // fails only for a closed file
		wd, err := unix.InotifyAddWatch(int(fd), filepath.Join(t.fabricDir, home.Offers), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
		if err == nil {
			t.offers = uint32(wd)
			t.mark(1)
		} else if !errors.Is(err, unix.ENOENT) {
			t.log.Warn("cannot see who looks for a peer: connections whose addresses are translated stay on TCP", "err", err)
		}
	})
}

// mark sets a flag on the board of the offers' directory, if there is one: ports may be translated,
// or no longer. Without the flag, an end whose port nobody is known to use does not look for its
// peer.
func (t *translator) mark(value uint32) {
	const at = 3 * 4 * 4096 // after three words for each possible port
	dir, err := unix.Open(filepath.Join(t.fabricDir, home.Offers), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, board, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the watch reports when one is made
	}
	defer unix.Close(fd)
	var st, above unix.Stat_t
	if unix.Fstat(fd, &st) != nil || unix.Fstat(dir, &above) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != above.Uid {
		return // a user's trick: nothing else of that user is harmed
	}
	word := binary.NativeEndian.AppendUint32(nil, value)
	if st.Size < at+int64(len(word)) {
		err = unix.Fallocate(fd, 0, 0, at+int64(len(word)))
	}
	if err == nil {
		_, err = unix.Pwrite(fd, word, at)
	}
	if err != nil {
		t.log.Warn("cannot say that addresses are translated", "err", err)
	}
}

// know stores where addresses and namespaces are.
func (t *translator) know(owner map[netip.Addr]uint64, paths map[uint64]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner, t.paths = maps.Clone(owner), paths
}

// run answers questions until the events are closed.
func (t *translator) run() error {
	buffer, order := make([]byte, 1<<16), binary.NativeEndian
	for {
		t.events.SetReadDeadline(t.next())
		n, err := t.events.Read(buffer)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			// struct inotify_event: watch, mask, cookie, and the length of the name
			// that follows
			watch, size := order.Uint32(buffer[at:]), int(order.Uint32(buffer[at+12:]))
			name := string(bytes.TrimRight(buffer[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size], "\x00"))
			at += unix.SizeofInotifyEvent + size
			switch {
			case watch != t.offers && name == home.Offers:
				t.watch()
			case watch == t.offers && name == board:
				t.mark(1)
			case watch != t.offers && name == home.Announcement: // another registrar has ended
				t.announce()
			case watch == t.offers && strings.HasPrefix(name, home.OfferPrefix):
				t.asked(name)
			}
		}
		t.work(time.Now())
	}
}

// next returns when there is something to do even if nothing is heard; zero means never.
func (t *translator) next() time.Time {
	if len(t.waiting) > 0 && (t.tidy.IsZero() || t.waiting[0].due.Before(t.tidy)) {
		return t.waiting[0].due
	}
	return t.tidy
}

// asked handles an offer. If the peer may be at the address that the offer names, most find it
// themselves and withdraw the offer at once. These wait a moment, so that nothing is done for them.
func (t *translator) asked(name string) {
	const moment, most = 3 * time.Millisecond, 1 << 14
	v, err := home.ParseView(strings.TrimPrefix(name, home.OfferPrefix))
	if err != nil {
		return
	}
	t.mu.Lock()
	_, known := t.owner[v.Remote.Addr()]
	t.mu.Unlock()
	switch {
	case !known && v.Local.Addr() != v.Remote.Addr() && !v.Remote.Addr().IsLoopback():
		t.answer(v)
	case len(t.waiting) < most: // otherwise the end asks again
		t.waiting = append(t.waiting, question{v, time.Now().Add(moment)})
	}
}

// work does what is due.
func (t *translator) work(now time.Time) {
	for len(t.waiting) > 0 && !t.waiting[0].due.After(now) {
		v := t.waiting[0].of
		t.waiting = t.waiting[1:]
		if _, err := os.Lstat(filepath.Join(t.fabricDir, home.Offers, v.Offer())); err == nil {
			t.answer(v)
		}
	}
	if t.tidy.IsZero() || now.Before(t.tidy) {
		return
	}
	t.tidy = time.Time{}
	maps.DeleteFunc(t.answered, func(_ home.View, at time.Time) bool { return now.Sub(at) > soon })
	if left := t.said.Expire(); left || len(t.answered) > 0 {
		t.tidy = now.Add(soon)
	}
}

// announce announces again that addresses are translated.
func (t *translator) announce() {
	if err := t.said.Announce(); err != nil {
		t.log.Warn("connections whose addresses are translated stay on TCP from now on", "err", err)
		return
	}
	t.mark(1)
}

// answer tells both ends of a connection how the other sees it, if something translates it.
func (t *translator) answer(v home.View) {
	if time.Since(t.answered[v]) < soon { // the other end has asked already
		return
	}
	other, err := t.follow(v)
	plain := v.Turned()
	plain.Net = other.Net
	if err == nil && other != plain {
		t.log.Info("translated", "local", v.Local, "remote", v.Remote, "there", other.Local, "from", other.Remote)
		err = t.said.Say(v, other)
	}
	if err == nil {
		now := time.Now()
		t.answered[v], t.answered[other] = now, now
		if t.tidy.IsZero() {
			t.tidy = now.Add(soon)
		}
	} else if !errors.Is(err, errNowhere) && !t.troubled {
		// connections to other hosts end nowhere here
		t.troubled = true
		t.log.Warn("cannot follow a connection; such ones stay on TCP, and no more is said of them", "local", v.Local, "remote", v.Remote, "err", err)
	}
}

var errNowhere = errors.New("its other end is in no namespace known here")

// follow finds the other end of a connection the way a packet of this end goes: through its own
// network namespace, ours, and the one to which the packet's destination then belongs. Each of them
// may translate addresses.
//
// A container that may translate could make its packets appear to come from any address. So a
// packet may leave a container only from addresses that are registered for it.
func (t *translator) follow(v home.View) (home.View, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, at := packet{v.Local, v.Remote}, v.Net
	for range 3 {
		var found bool
		var err error
		if p, found, err = t.visit(at, p); err != nil {
			return home.View{}, err
		}
		if found {
			return home.View{Net: at, Local: p.dst, Remote: p.src}, nil
		}
		next, known := t.mine, t.owner[p.src.Addr()] == at
		if at == t.mine {
			next, known = t.owner[p.dst.Addr()], true
		}
		if !known || next == 0 || next == at {
			break
		}
		at = next
	}
	return home.View{}, errNowhere
}

// visit returns a packet as it leaves a network namespace, and reports whether a connected socket
// there takes it.
func (t *translator) visit(at uint64, p packet) (out packet, found bool, err error) {
	look := func() error {
		s, err := diag.Open()
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if is, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || is != at {
			return errNowhere
		}
		if out, err = p.pass(); err != nil {
			return err
		}
		end, err := diag.Lookup(s, unix.IPPROTO_TCP, out.dst, out.src)
		found = err == nil && end.Inode != 0 // otherwise there is no socket, or only a listener
		return nil
	}
	if at == t.mine {
		return out, found, look()
	}
	err = errNowhere
	for range 2 { // the process by which it was found may have ended
		if path, known := t.paths[at]; known {
			var ns *netns.NS
			if ns, err = netns.Open(path); err == nil {
				err = ns.Do(look)
				ns.Close()
			}
		}
		if err == nil || !t.search(at) {
			break
		}
	}
	return out, found, err
}

// search searches for a network namespace, from time to time.
func (t *translator) search(cookie uint64) (found bool) {
	const pause = 100 * time.Millisecond
	if t.owner == nil || time.Since(t.searched) < pause {
		return false
	}
	err := namespaces(func(path string, ns *netns.NS) error {
		is, err := ns.Cookie()
		if err == nil && is == cookie {
			t.paths[cookie], found = path, true
		}
		return err
	}, func() bool { return found })
	if t.searched = time.Now(); err != nil && !found {
		t.log.Info("cannot find a network namespace", "err", err)
	}
	return found
}

// close removes what was said.
func (t *translator) close() error {
	if t.events != nil {
		t.events.Close()
	}
	t.mark(0)
	return t.said.Close()
}
