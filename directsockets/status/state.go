package status

import "fmt"

// A State is where a socket is on its way to a lane.
type State uint32

// The states, as ext-ds.md numbers them.
const (
	Free      State = iota // no socket
	New                    // not connected, as far as the library knows
	Listener               // waits for connections; nothing to do with lanes
	Counting               // on TCP, and not busy enough to look for a lane
	Offered                // on TCP; waits for the peer to find it
	Attaching              // on TCP; has asked the peer
	Attached               // has a lane and does not use it yet
	Engaging               // about to use it
	Lane                   // reads and writes by its lane as soon as the peer agrees
	TCP                    // stays on TCP; the reason says why
	Closed                 // over
	Resting                // has a lane, and is on TCP until the programs that inherited it have ended
)

var states = [...]string{"free", "new", "listening", "counting", "offered", "attaching", "attached", "engaging", "lane", "tcp", "closed", "resting"}

// String is a word for it.
func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state %d", uint32(s))
}

// A Reason is why a socket is on TCP.
type Reason uint32

// None is the reason of a socket that has none: nothing stands against a lane.
const None Reason = 0

// NoPeer is the reason of a socket whose peer did not show up in the fabric
// directory.
const NoPeer Reason = 3

// Policy is the reason of a socket that a policy file keeps on TCP.
const Policy Reason = 25

// Each reason with its short name, as the library has it, and what helps.
var reasons = [...]struct{ name, remedy string }{
	{"none", ""},
	{"setting", "the environment says EXN_DS=off: unset it"},
	{"directory", "it has no fabric directory that it can use and trust: name one with --fabric that belongs to it, or to a group that it is in, and that not everybody may write; a service needs ReadWritePaths= and SupplementaryGroups= for it"},
	{"no peer in this fabric directory", "start the peer by exn-tun run too, with the same --fabric"},
	{"address", "only connections inside one network namespace take lanes, between addresses of EXN_DS_SUBNETS, or between those that exn-tun up (of exn0) or exn-tun bridge (of containers) registers in the same fabric directory"},
	{"proof", "the peer could not show that it owns the other end: a proxy or another namespace lies between, a service has PrivateUsers=, or no AF_NETLINK in RestrictAddressFamilies=, or the kernel has no tcp_diag (exn-tun check says that)"},
	{"version", "the peer has another version of the library: use one build"},
	{"memory", "raise the limit of memory of its cgroup or of address space, or set EXN_DS_MEMORY"},
	{"files", "raise the limit of open files (ulimit -n)"},
	{"lanes", "all lanes between these two processes are taken: raise EXN_DS_LANES"},
	{"waiters", "too many threads and epoll sets wait for this peer"},
	{"uncounted bytes", "something moved bytes past the library: a raw system call or stdio"},
	{"shared between processes", "several processes hold it, or a program has inherited it (Resting: until that has ended), or a thread has descriptors of its own (unshare); let sockets be close-on-exec"},
	{"stdio", "the program reads or writes it through stdio"},
	{"option", "the program uses an option that lanes do not have"},
	{"nested or inherited epoll set", "the program watches it through a nested or inherited epoll set"},
	{"peer gone", "the peer closed, died or reset"},
	{"tripwire", "bytes came by TCP after the switch: something writes past the library"},
	{"hostile memory", "the peer wrote nonsense into shared memory"},
	{"process died inside a call", "a process of the same family died while it used it"},
	{"test", "a setting for tests is on"},
	{"privilege", "the program changed its user, group or capabilities"},
	{"refused by peer", "the peer's reason tells more: look at its sockets"},
	{"io_uring", "the program has an io_uring, which moves bytes past the library"},
	{"raw system call", "the program waits or moves bytes by system calls of its own (Bun), or never waits"},
	{"policy", "the policy file keeps it on TCP (exn-tun run --policy)"},
	{"short connections", "for now: connections to that port were too short of late to be worth a lane, so it gets one only after 64 calls; set EXN_DS_CALLS to have it earlier"},
	{"nat", "its other end has other addresses: something between them translates, such as REDIRECT or DNAT of iptables; run exn-tun bridge, which tells both ends, or connect to where the server listens"},
	{"unread", "for now: its peer read nothing while the lane was full, and TCP holds more; EXN_DS_STUCK_MS says how long that may be"},
	{"seccomp", "the program has set a filter of its own system calls, which may have it killed for those of the library"},
}

// String is the short name.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].name
	}
	return fmt.Sprintf("reason %d", uint32(r))
}

// Remedy is what helps against it, or explains it.
func (r Reason) Remedy() string {
	if int(r) < len(reasons) {
		return reasons[r].remedy
	}
	return "the library is of another version than this program"
}
