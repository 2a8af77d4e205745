package hostile_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/test/ds"
)

// An attacker of another user connects to the listener of a victim in the directory of a group,
// and sends what could kill it or make it pay.

// role has this program be the attacker, or a victim in Go.
const role = "EXN_TEST_NEIGHBOUR"

func TestMain(m *testing.M) {
	switch what, of, _ := strings.Cut(os.Getenv(role), " "); what {
	case "victim":
		beVictim()
	case "attacker":
		beAttacker(os.Getenv("EXN_FABRIC"), of)
	default:
		os.Exit(m.Run())
	}
	os.Exit(0)
}

// beVictim plays ping-pong on connections to itself and says a line for each, until its input ends.
func beVictim() {
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	l, err := directsockets.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		for {
			c, err := l.Accept()
			check(err)
			go io.Copy(c, c)
		}
	}()
	for {
		c, err := directsockets.Dial("tcp", l.Addr().String())
		check(err)
		b := make([]byte, 100)
		for range 3000 {
			_, err := c.Write(b)
			check(err)
			_, err = io.ReadFull(c, b)
			check(err)
		}
		c.Close()
		fmt.Println("round")
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hello is a good HELLO (docs/protocols/ext-ds.md, control messages) for a file of 4 MiB, of
// which the windows are 2 MiB.
func hello() []byte {
	const lanes, slots, window, windows, size = 247, 64, 256 << 10, 8, 4 << 20
	m := make([]byte, 256)
	for at, v := range map[int]uint32{0: 1, 4: 3, 20: lanes, 24: slots, 28: window, 160: windows} {
		binary.NativeEndian.PutUint32(m[at:], v)
	}
	binary.NativeEndian.PutUint64(m[32:], size)
	copy(m[96:], "p-1-0123456789abcdef")
	return m
}

// beAttacker sends one HELLO to each listener that there is, until one victim ended the channel or
// took the memory. It says which.
func beAttacker(fabric, what string) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if what == "huge" {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	}
	memory, err := unix.MemfdCreate("neighbour", flags)
	check(err)
	check(unix.Ftruncate(memory, 4<<20))
	if what == "whole" {
		check(unix.Fallocate(memory, 0, 0, 4<<20))
		p, err := unix.Mmap(memory, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		check(err)
		check(unix.Munmap(p))
	}
	_, err = unix.FcntlInt(uintptr(memory), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_FUTURE_WRITE)
	check(err)
	bell, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	check(err)
	fds := []int{memory, bell, bell, bell, bell, bell, bell, bell, bell}
	for {
		names, err := filepath.Glob(filepath.Join(fabric, "ds", "p-*"))
		check(err)
		for _, name := range names {
			s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			check(err)
			if err := unix.Connect(s, &unix.SockaddrUnix{Name: name}); err != nil {
				unix.Close(s)
				if err == unix.EACCES {
					fmt.Println("not let in")
					return
				}
				continue
			}
			if unix.Sendmsg(s, hello(), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL) == nil && answered(s, what) {
				return
			}
			unix.Close(s)
		}
		time.Sleep(time.Millisecond)
	}
}

// answered waits for what becomes of a channel.
func answered(s int, what string) bool {
	for {
		oob := make([]byte, 256)
		n, on, _, _, err := unix.Recvmsg(s, make([]byte, 256), oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 {
			fmt.Println("ended")
			return true
		}
		if messages, err := unix.ParseSocketControlMessage(oob[:on]); err == nil && len(messages) > 0 && what == "whole" {
			fmt.Println("taken")
			return true
		}
	}
}

// reachable is a directory that other users can enter, and a copy there of a program.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copied(t *testing.T, dir, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestNeighbour(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become two users")
	}
	const group, alice, bob = 54321, 54322, 54323 // nobody has to know them
	dir := reachable(t)
	self, library := copied(t, dir, "/proc/self/exe"), copied(t, dir, ds.Library(t))
	victims := map[string]struct {
		program string
		env     []string
	}{
		"C":  {copied(t, dir, ds.Build(t, "neighbour", nil, "neighbour.c")), []string{"LD_PRELOAD=" + library}},
		"Go": {self, []string{role + "=victim"}},
	}
	for language, victim := range victims {
		for _, c := range []struct{ attack, peers, want string }{
			{"huge", "group", "ended"}, {"holes", "group", "ended"}, {"whole", "group", "taken"}, {"whole", "same-user", "not let in"},
		} {
			t.Run(language+" "+c.attack+" "+c.peers, func(t *testing.T) {
				fabric := filepath.Join(dir, "fabric-"+language+c.attack+c.peers)
				if err := os.Mkdir(fabric, 0o700); err != nil {
					t.Fatal(err)
				}
				env := append(append(os.Environ(), victim.env...), "EXN_FABRIC="+fabric, "EXN_PEERS="+c.peers)
				if c.peers == "same-user" { // with a board there is a listener only where there is a peer
					env = append(env, "NEIGHBOUR_LANES=1")
				}
				mode := os.FileMode(0o700)
				if c.peers == "group" {
					mode = 0o770 | os.ModeSetgid
				}
				for _, err := range []error{os.Chown(fabric, alice, group), os.Chmod(fabric, mode)} {
					if err != nil {
						t.Fatal(err)
					}
				}
				as := func(uid uint32, program string, env []string) *exec.Cmd {
					cmd := exec.CommandContext(t.Context(), program)
					cmd.Env, cmd.Stderr = env, os.Stderr
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: group}, Pdeathsig: syscall.SIGKILL}
					return cmd
				}
				attacked := as(alice, victim.program, env)
				input, err := attacked.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				output, err := attacked.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := attacked.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(output)
				lines.Scan()
				if c.peers == "same-user" { // somebody opened the directory by mistake, after the victim had looked
					for _, d := range []string{fabric, filepath.Join(fabric, "ds")} {
						if err := os.Chmod(d, 0o777); err != nil {
							t.Fatal(err)
						}
					}
				}
				text, err := as(bob, self, append(os.Environ(), role+"=attacker "+c.attack, "EXN_FABRIC="+fabric)).Output()
				if said := strings.TrimSpace(string(text)); err != nil || said != c.want {
					t.Errorf("the attacker says %q (%v), want %q", said, err, c.want)
				}
				for range 3 { // the victim goes on
					if !lines.Scan() {
						t.Error("the victim has ended")
						break
					}
				}
				input.Close()
				go io.Copy(io.Discard, output)
				if err := attacked.Wait(); err != nil {
					t.Errorf("the victim: %v", err)
				}
			})
		}
	}
}
