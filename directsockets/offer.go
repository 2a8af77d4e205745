package directsockets

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
)

// An offer announces in the fabric directory that a connection looks for its peer. It is a symbolic
// link. Its name is the connection as the owner sees it; its target names the owner's listener and
// the socket's inode. Nobody waits for an offer.

// offerExpired is the age from which an offer is ignored. It exceeds the second for which its owner
// leaves it there.
const offerExpired = 2 * time.Second

func (d *directory) makeOffer(name, listener string, inode uint64) error {
	return d.leave(name, fmt.Sprintf("%s:%d", listener, inode))
}

func (d *directory) leave(name, target string) error {
	d.removeOffer(name)
	if err := unix.Symlinkat(target, d.fd, name); err != nil {
		return os.NewSyscallError("symlinkat", err)
	}
	return nil
}

func (d *directory) removeOffer(name string) { d.remove(name, unix.S_IFLNK) }

// lookOffer reads the listener and the inode of an offer. It removes an offer that is old or
// malformed, and leaves a refusal, which found does not report.
func (d *directory) lookOffer(name string) (listener string, inode uint64, found bool) {
	target, err := d.readlink(name)
	if err != nil || strings.HasPrefix(target, refusalMark) {
		return "", 0, false
	}
	listener, number, ok := strings.Cut(target, ":")
	inode, err = strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || !listenerName(listener) || d.age(name) > offerExpired {
		d.removeOffer(name)
		return "", 0, false
	}
	return listener, inode, true
}

// listenerName reports whether name can be that of a process's listener.
func listenerName(name string) bool {
	return strings.HasPrefix(name, "p-") && len(name) < nameSize && !strings.Contains(name, "/")
}

// abandon is told that a channel has ended; mu is held.
func (r *rendezvous) abandon(ch *channel) {
	for _, c := range r.waiting {
		if c.ch != ch || c.State() != status.Attaching {
			continue
		}
		if ch.why == reasonPeerGone {
			r.later(c, ch.why)
			continue
		}
		c.stayLocked(ch.why) // another version, no memory: it would be so again
		if ch.why == reasonVersion {
			r.refuse(c, ch.why)
		}
	}
}
