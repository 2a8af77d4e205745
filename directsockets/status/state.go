package status

import "fmt"

// A State is how far a socket has come on its way to a lane.
type State uint32

// The states, numbered as in ext-ds.md.
const (
	Free      State = iota // no socket
	New                    // not connected, as far as the library knows
	Listener               // waits for connections; never has a lane
	Counting               // on TCP; not busy enough to look for a lane
	Offered                // on TCP; waits until the peer finds it
	Attaching              // on TCP; has asked the peer
	Attached               // has a lane and does not use it yet
	Engaging               // about to use it
	Lane                   // reads and writes through its lane as soon as the peer agrees
	TCP                    // stays on TCP; the reason says why
	Closed                 // closed
	Resting                // has a lane; on TCP until the programs that inherited it have ended
)

var states = [...]string{"free", "new", "listening", "counting", "offered", "attaching", "attached", "engaging", "lane", "tcp", "closed", "resting"}

// String returns the name of the state.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state %d", uint32(s))
}

// A Reason is why a socket is on TCP.
type Reason uint32

// None is the reason of a socket that may use a lane.
const None Reason = 0

// NoPeer is the reason of a socket whose peer did not appear in the fabric directory.
const NoPeer Reason = 3

// Version is the reason of a socket whose peer has another version of the library.
const Version Reason = 6

// Refused is the reason of a socket whose peer has a reason of its own.
const Refused Reason = 22

// Policy is the reason of a socket that a policy file keeps on TCP.
const Policy Reason = 25

// NoLibrary is the reason of a socket whose peer is known to have no library.
const NoLibrary Reason = 30

const setting Reason = 1

// Settled is what is to be shown of a state with its reason. A socket that has found no peer with
// the library is on TCP, though it looks on now and then. So is one that a policy keeps there,
// though it counts until it has told its peer.
func (s State) Settled(why Reason) State {
	if s == Counting && (why == NoPeer || why == NoLibrary || why == Policy) {
		return TCP
	}
	return s
}

// Each reason: its short name, as the library has it, what it means, and what helps. This is
// the only table; docs/troubleshooting.md is made from it (see document_test.go).
var reasons = [...]struct{ name, meaning, remedy string }{
	{"none",
		"nothing stands against shared memory",
		""},
	{"setting",
		"EXN_DS=off is set",
		"unset EXN_DS"},
	{"directory",
		"there is no fabric directory that this user may use and can trust: it belongs to somebody else, everybody may write to it, or it is read-only for a service",
		"name one with --fabric that belongs to the user, or to a group that the user is in, and that not everybody may write to; a service also needs ReadWritePaths= and SupplementaryGroups=; if the directory became a group's after its first use, remove the ds in it"},
	{"no peer in this fabric directory",
		"nobody with the library has shown up for the other end, and who has that cannot be seen: the peer does not use the library, belongs to another user, or uses another fabric directory, which is named then; or an address is translated on the way and no exn-tun bridge runs",
		"start the peer with exn-tun run too, with the same --fabric"},
	{"address",
		"the two ends are in different network namespaces, or the address is none that belongs to this host",
		"for containers run exn-tun bridge on the host, or join them by exn-tun up (exn0), with the same fabric directory; EXN_DS_SUBNETS names subnets whose addresses are the host's own"},
	{"proof",
		"one side could not show that it owns its end of the connection: a proxy lies between, users are mapped differently (PrivateUsers=), the process may not ask the kernel (no AF_NETLINK in RestrictAddressFamilies=), or the kernel has no tcp_diag",
		"ask exn-tun check; run both in one user namespace, allow AF_NETLINK and AF_UNIX, load the kernel module tcp_diag"},
	{"version",
		"the two libraries are of different versions",
		"install one build everywhere and restart the programs"},
	{"memory",
		"a limit of the cgroup or of address space leaves no room for the shared memory",
		"raise the limit, or set EXN_DS_MEMORY"},
	{"files",
		"there are no free descriptors; a pair of processes needs 17",
		"raise the limit of open files (ulimit -n, LimitNOFILE=)"},
	{"lanes",
		"all lanes between these two processes are in use",
		"raise EXN_DS_LANES"},
	{"waiters",
		"too many threads and epoll sets wait for this peer",
		"none"},
	{"uncounted bytes",
		"something moved bytes past the library: stdio of the C library, or a system call of the program's own",
		"none"},
	{"shared between processes",
		"several processes hold the connection: another program inherited it (state resting: it goes on in shared memory when that program has ended), it was passed on and the sender still has it, or a thread has descriptors of its own (unshare)",
		"open sockets with close-on-exec and close what is not used; ss -tnp shows which processes hold it"},
	{"stdio",
		"the program made a FILE of the socket, or uses POSIX AIO on it",
		"none"},
	{"option",
		"the program uses a socket option that only TCP has",
		"none; docs/options.md lists the options"},
	{"nested or inherited epoll set",
		"the program watches the connection in a way that the library cannot reproduce exactly: through an epoll set in an epoll set, an inherited one, or with EPOLLONESHOT from many threads",
		"none"},
	{"peer gone",
		"the peer closed the connection, died or reset it",
		"none"},
	{"tripwire",
		"the connection was reset: bytes came by TCP after both sides had left TCP, so something writes past the library",
		"report it, with the name of the program"},
	{"hostile memory",
		"the connection was reset: the peer wrote nonsense into the shared memory",
		"the peer is broken, or attacks: look at it"},
	{"process died inside a call",
		"the connection was reset: a process that shares it was killed while it moved bytes",
		"none"},
	{"test",
		"a setting for tests is on",
		"unset the EXN_DS_TEST_ variables"},
	{"privilege",
		"the program changed its user, group or capabilities",
		"none; connections opened afterwards can use shared memory"},
	{"refused by peer",
		"the peer has a reason of its own, which show sockets adds if your user may see the peer",
		"what helps against that reason"},
	{"io_uring",
		"the program has an io_uring that moves bytes of connections past the library, or may",
		"none"},
	{"raw system call",
		"the program waits or moves bytes by system calls of its own (Bun), or never waits",
		"none"},
	{"policy",
		"a rule of the policy file keeps it on TCP",
		"change the file of exn-tun run --policy"},
	{"short connections",
		"for now: most connections to that port ended before shared memory was worth its price, so this one must be busier first: 64 calls or 4 MiB",
		"set EXN_DS_CALLS and the number holds for all ports"},
	{"nat",
		"the other end has other addresses: REDIRECT or DNAT of iptables translates between them",
		"run exn-tun bridge, which tells both ends, or connect to where the server listens"},
	{"unread",
		"for now: the shared memory was full and the peer read nothing for 100 ms, so the writer uses TCP for a while, which holds more",
		"none is needed; EXN_DS_STUCK_MS sets the 100 ms"},
	{"seccomp",
		"the program has set a filter of its own system calls, which could have it killed for those of the library",
		"none"},
	{"peer without the library",
		"the program at the other end, which show sockets names, was started without the library, or cannot have it: the most common mistake, for both ends need it",
		"start it with exn-tun run too, with the same --fabric"},
}

// String returns the short name.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].name
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

// Meaning returns a sentence that says what keeps the connection on TCP.
func (r Reason) Meaning() string {
	if int(r) < len(reasons) {
		return reasons[r].meaning
	}
	return "the library is of another version than this program"
}

// Remedy returns what helps; "none" if nothing helps or is needed.
func (r Reason) Remedy() string {
	if int(r) < len(reasons) {
		return reasons[r].remedy
	}
	return "the library is of another version than this program"
}
