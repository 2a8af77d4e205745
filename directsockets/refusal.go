package directsockets

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/status"
)

// A refusal tells the other end of a connection that this one takes no lane, and why, so that both
// can tell their users. It lies where that end looks for our offer: a symbolic link of the same
// name, whose target is "no:", the inode of our socket and the number of the reason. An end reads
// it when it has made an offer, and again when that has expired.
//
// Only the process that has the socket at the other end is believed, or another one of its user:
// the kernel knows the inode and the user of that socket.

const refusalMark = "no:"

// declinesMost is the number of calls after which a connection that a policy keeps on TCP no longer
// looks for a peer that might want to know.
const declinesMost = 1024

// declines looks whether a peer may look for a connection that a policy keeps on TCP. It is called
// where others look for a peer, by the call that has set looking.
func (c *Conn) declines(calls uint64) {
	const young = 64 // as in count
	switch possible, err := c.home.possible(c); {
	case possible || err != nil || calls >= declinesMost:
		go c.home.decline(c, possible)
	case calls < young:
		c.due.Store(calls + 1)
		c.looking.Store(false)
	default:
		c.due.Store(calls + step)
		c.looking.Store(false)
	}
}

// decline ends that: from now on calls go straight to package net.
func (r *rendezvous) decline(c *Conn, tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.State() != status.Counting {
		return
	}
	tell = tell && r.open() == nil && r.identify(c) == reasonNone
	c.stayLocked(reasonPolicy)
	if tell {
		r.refuse(c, reasonPolicy)
	}
}

// refuse leaves a refusal. The caller holds mu.
func (r *rendezvous) refuse(c *Conn, why status.Reason) {
	if r.dir == nil || c.closing.Load() {
		return
	}
	if !r.declined && r.me == "" { // a process without a listener does not sweep otherwise
		r.dir.sweep()
	}
	r.declined = true
	if r.dir.leave(c.view().Offer(), fmt.Sprintf("%s%d:%d", refusalMark, c.inode, why)) != nil {
		return
	}
	c.refused.Store(true)
	if c.closing.Load() { // Close may have looked before
		r.dir.removeOffer(c.view().Offer())
	}
}

// withdraw removes the refusal of a connection that is being closed.
func (c *Conn) withdraw() {
	if !c.refused.Load() {
		return
	}
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	if c.home.dir != nil {
		c.home.dir.removeOffer(c.view().Offer())
	}
}

// refusedBy reports whether the other end has refused, and keeps c on TCP then. The caller holds
// mu.
func (r *rendezvous) refusedBy(c *Conn) bool {
	if r.dir == nil || c.other == (tuple{}) {
		return false
	}
	name := home.View{Net: cmp.Or(c.peerNet, c.netns), Local: c.other.local, Remote: c.other.remote}.Offer()
	target, err := r.dir.readlink(name)
	text, is := strings.CutPrefix(target, refusalMark)
	if err != nil || !is {
		return false
	}
	why := r.judge(c, name, text)
	r.dir.removeOffer(name) // nobody else has a use for it
	switch why {
	case reasonNone:
		return false
	case reasonVersion:
		c.stayLocked(why)
	default:
		c.refusal = why
		c.stayLocked(reasonRefused)
	}
	return true
}

// judge returns the reason that a refusal gives, or reasonNone if it is not to be believed. Of a
// peer in another network namespace our kernel knows no socket, so its refusal must be our user's
// and as young as an offer.
func (r *rendezvous) judge(c *Conn, name, text string) status.Reason {
	number, reason, _ := strings.Cut(text, ":")
	inode, err1 := strconv.ParseUint(number, 10, 64)
	why, err2 := strconv.ParseUint(reason, 10, 32)
	var st unix.Stat_t
	if err1 != nil || err2 != nil || why > uint64(reasonPlain) || unix.Fstatat(r.dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return reasonNone
	}
	if c.peerNet != 0 {
		if int(st.Uid) != unix.Geteuid() || time.Since(time.Unix(st.Mtim.Unix())) > offerExpired {
			return reasonNone
		}
		return status.Reason(why)
	}
	asks, err := openDiag(c.netns)
	if err != nil {
		return reasonNone
	}
	defer unix.Close(asks)
	far, found := lookup(asks, c.other)
	if !found || inode == 0 || far.Inode != inode || far.UID != st.Uid || !someone(st.Uid) {
		return reasonNone
	}
	return status.Reason(why)
}
