package answers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/directsockets/status"
	"exnet/test/ds"
)

// An end is a program that answers.c or goend_test.go is, with its environment.
type end struct {
	golang bool
	env    []string
}

func (e end) start(t *testing.T, args ...string) *program {
	t.Helper()
	if e.golang {
		return start(t, os.Args[0], append(e.env, role+"=1", "LD_PRELOAD="), args...)
	}
	return start(t, ds.Build(t, "answers", nil, "answers.c"), e.env, args...)
}

// join connects them.
func join(t *testing.T, s, c end) (server, client *program) {
	t.Helper()
	server = s.start(t, "serve")
	client = c.start(t, "call", server.line())
	if got := client.line(); got != "ready" {
		t.Fatal(got)
	}
	return server, client
}

// published is what a process itself says of its connection, without a look at the other end.
func published(t *testing.T, pid int) status.Socket {
	t.Helper()
	all, err := status.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, s := range p.Sockets {
			if p.PID == pid && s.State != status.Listener && s.State != status.New {
				return s
			}
		}
	}
	return status.Socket{}
}

// links are the offers and refusals in a fabric directory.
func links(t *testing.T, fabric string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(fabric, home.Offers, "o-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// refusals plays a case with each of the two ends in C and in Go, at each of the two sides, with
// each of them busy before the other.
func refusals(t *testing.T, languages []string, play func(t *testing.T, fabric string, refusing, other string, asServer, last bool)) {
	for _, languages := range languages {
		refusing, other, _ := strings.Cut(languages, "-")
		for _, side := range []string{"client", "server"} {
			for _, last := range []bool{false, true} {
				name := fmt.Sprintf("%s/%s", languages, side)
				if last {
					name += "/last"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel() // mostly they wait until an offer has expired
					play(t, ds.Fabric(t), refusing, other, side == "server", last)
				})
			}
		}
	}
}

// meet joins an end that will take no lane with another one, waits until both say what they are
// expected to, and looks that no link is left.
func meet(t *testing.T, fabric string, refusing, other end, asServer, last bool, mine, theirs status.Reason, words string) {
	const busyLater = "EXN_DS_CALLS=64"
	if last {
		refusing.env = append(refusing.env, busyLater)
	} else {
		other.env = append(other.env, busyLater)
	}
	var no, asks, client *program
	if asServer {
		no, asks = join(t, refusing, other)
		client = asks
	} else {
		asks, no = join(t, other, refusing)
		client = no
	}
	until(t, client, "both ends say why", func() bool {
		if got := client.call(100); got != "done" { // after an attempt in vain they look after ever more calls
			t.Fatal(got)
		}
		a, b := published(t, no.pid()), published(t, asks.pid())
		return a.State == status.TCP && a.Reason == mine && b.State == status.TCP && b.Reason == theirs
	})
	want := "stays on TCP: " + words + "\n"
	until(t, client, fmt.Sprintf("%q on standard error", want), func() bool { return strings.Contains(asks.said(), want) })
	if left := links(t, fabric); len(left) > 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

// An end whose peer a policy keeps on TCP says so itself, without a look at that peer.
func TestPolicyIsTold(t *testing.T) {
	library := ds.Library(t)
	refusals(t, []string{"c-c", "c-go", "go-c", "go-go"}, func(t *testing.T, fabric string, refusing, other string, asServer, last bool) {
		kept := end{refusing == "go", ds.Preload(library, fabric, "EXN_DS_POLICY=connection * any any any no;")}
		asks := end{other == "go", ds.Preload(library, fabric, "EXN_DS_VERBOSE=1")}
		meet(t, fabric, kept, asks, asServer, last, status.Policy, status.Refused, "refused by peer: policy")
	})
}

// An end whose peer is of a later version, which takes none of ours, says so, and so does that.
func TestVersionIsTold(t *testing.T) {
	library, later := ds.Library(t), ds.LaterLibrary(t)
	refusals(t, []string{"c-c", "c-go"}, func(t *testing.T, fabric string, _, other string, asServer, last bool) {
		newer := end{false, ds.Preload(later, fabric)}
		asks := end{other == "go", ds.Preload(library, fabric, "EXN_DS_VERBOSE=1")}
		meet(t, fabric, newer, asks, asServer, last, status.Version, status.Version, "version")
	})
}

// What is only named like a refusal keeps nobody from a lane.
func TestForgedRefusal(t *testing.T) {
	library := ds.Library(t)
	for _, language := range []string{"c", "go"} {
		for _, target := range []string{
			"no:", "no:1:25", "no:%d", "no:%d:", "no:%d:0", "no:%d:31", "no:%d:4294967321", "no:%d:25x", "no:-1:25",
			"no:99999999999999999999999999:25", "no:" + strings.Repeat("9", 250),
		} {
			name := target[:min(len(target), 20)]
			t.Run(language+"/"+name, func(t *testing.T) {
				fabric := ds.Fabric(t)
				e := end{language == "go", ds.Preload(library, fabric)}
				server, client := join(t, e, e)
				if got := client.call(1); got != "done" {
					t.Fatal(got)
				}
				mine := published(t, client.pid())
				if err := os.MkdirAll(filepath.Join(fabric, home.Offers), 0o700); err != nil {
					t.Fatal(err)
				}
				for _, v := range []home.View{
					{Net: cookie(t), Local: mine.Local, Remote: mine.Remote},
					{Net: cookie(t), Local: mine.Remote, Remote: mine.Local},
				} {
					text := target
					if strings.Contains(text, "%d") {
						text = fmt.Sprintf(text, mine.Inode) // the server has another one, and the client needs its own
					}
					if err := os.Symlink(text, filepath.Join(fabric, home.Offers, v.Offer())); err != nil {
						t.Fatal(err)
					}
				}
				until(t, client, "a lane", func() bool {
					return published(t, client.pid()).State == status.Lane && published(t, server.pid()).State == status.Lane
				})
			})
		}
	}
}

// cookie is that of our network namespace.
func cookie(t *testing.T) uint64 {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	n, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil && err != syscall.ENOPROTOOPT { // before Linux 5.14 all have 0
		t.Fatal(err)
	}
	return n
}
