package script_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
	"exnet/fabric/limits"
	"exnet/test/built"
	"exnet/test/ds"
	"exnet/test/ds/script"
	"exnet/test/netns"
)

// conversation is a busy connection that both ends close; nothing of it may differ
// when a limit keeps it on TCP.
const conversation = `script conversation
open
warm
a write c 100000
b recv d 100000 waitall
b write d 100
a read c 100
`

// parse is for one script.
func parse(t *testing.T, text string) script.Script {
	t.Helper()
	scripts, err := script.Parse(text, script.Variant{Family: "4"})
	if err != nil {
		t.Fatal(err)
	}
	return scripts[0]
}

// behind is the player started by a shell that runs commands first.
func behind(t *testing.T, commands string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "player.sh")
	text := fmt.Sprintf("#!/bin/bash\n%s\nexec %s\n", commands, player(t))
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// outcome plays s at a stage with the library and gives the busiest socket of each
// end. What the calls return must be as without the library, where limits hold too.
func outcome(t *testing.T, stage script.Stage, s script.Script) map[script.End]status.Socket {
	t.Helper()
	plain := script.Stage{Player: stage.Player, Patience: stage.Patience}
	want := play(t, plain, s)
	sockets := make(map[script.End]status.Socket)
	stage.Before = func(pids map[script.End]int) {
		for _, end := range both {
			sockets[end] = busiest(t, pids[end])
		}
	}
	got := play(t, stage, s)
	if diff := script.Diff(want, got); diff != "" {
		t.Errorf("TCP (-) and the library (+) differ:\n%s", diff)
	}
	return sockets
}

func staysOnTCP(t *testing.T, sockets map[script.End]status.Socket, ends []script.End, reason string) {
	t.Helper()
	for _, end := range ends {
		if s := sockets[end]; s.State != status.TCP || s.Reason.String() != reason || s.VELO.Sum()+s.RMA.Sum() > 0 {
			t.Errorf("end %c is %v with reason %q, want TCP with %q: %+v", end, s.State, s.Reason, reason, s)
		}
	}
}

func upgrades(t *testing.T, sockets map[script.End]status.Socket) {
	t.Helper()
	for _, end := range both {
		if s := sockets[end]; s.VELO.Sum()+s.RMA.Sum() < 100000 {
			t.Errorf("end %c is not on a lane: %+v", end, s)
		}
	}
}

// A fabric directory that cannot be used or trusted: everything stays on TCP.
func TestBadFabricDirectory(t *testing.T) {
	library := ds.Library(t)
	for name, make := range map[string]func(t *testing.T) string{
		"read-only": func(t *testing.T) string { return "/proc/exn" },
		"a file": func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		},
		"everybody may write": func(t *testing.T) string {
			dir := ds.Fabric(t)
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"a link there": func(t *testing.T) string {
			dir := ds.Fabric(t)
			if err := os.Symlink("/tmp", filepath.Join(dir, "ds")); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"none": func(t *testing.T) string { return filepath.Join(t.TempDir(), "not", "there") },
	} {
		t.Run(name, func(t *testing.T) {
			stage := script.Stage{Player: player(t), Env: ds.Preload(library, make(t))}
			staysOnTCP(t, outcome(t, stage, parse(t, conversation)), both, "directory")
		})
	}
}

// A file system without room, and a /dev/shm that is full, read-only or not there.
func TestFullFileSystems(t *testing.T) {
	library := ds.Library(t)
	fill := func(t *testing.T, dir string) {
		f, err := os.Create(filepath.Join(dir, "full"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
	}
	tmpfs := func(t *testing.T, dir string, flags uintptr, options string) {
		if err := unix.Mount("exn-test", dir, "tmpfs", flags, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // or the directory cannot be removed
	}
	for name, v := range map[string]struct {
		mount  func(t *testing.T, fabric string)
		reason string
	}{
		"no inodes left":     {func(t *testing.T, fabric string) { tmpfs(t, fabric, 0, "nr_inodes=2,mode=700") }, "directory"},
		"no pages left":      {func(t *testing.T, fabric string) { tmpfs(t, fabric, 0, "size=16k,mode=700"); fill(t, fabric) }, ""},
		"full /dev/shm":      {func(t *testing.T, _ string) { tmpfs(t, "/dev/shm", 0, "size=4k"); fill(t, "/dev/shm") }, ""},
		"read-only /dev/shm": {func(t *testing.T, _ string) { tmpfs(t, "/dev/shm", unix.MS_RDONLY, "") }, ""},
		"no /dev/shm":        {func(t *testing.T, _ string) { _ = unix.Unmount("/dev/shm", unix.MNT_DETACH) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // for good: the thread ends with this goroutine
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				t.Skipf("needs root for mounts of its own: %v", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				t.Fatal(err)
			}
			fabric := ds.Fabric(t)
			v.mount(t, fabric)
			stage := script.Stage{Player: player(t), Env: ds.Preload(library, fabric)}
			if sockets := outcome(t, stage, parse(t, conversation)); v.reason == "" {
				upgrades(t, sockets)
			} else {
				staysOnTCP(t, sockets, both, v.reason)
			}
		})
	}
}

// A fabric directory that vanishes is made anew, and connections go on.
func TestFabricDirectoryVanishes(t *testing.T) {
	library, fabric := ds.Library(t), ds.Fabric(t)
	s := parse(t, conversation+`a sleep 1
a c2=socket 4
a connect c2 4 $port
b d2=accept l
b&7 pong d2 40 600
a ping c2 40 600
b join 7
a write c2 10
b read d2 10
`)
	stage := script.Stage{Player: player(t), Env: ds.Preload(library, fabric), Each: func(step script.Step) {
		if step.Words[0] == "sleep" {
			if err := os.RemoveAll(fabric); err != nil {
				t.Error(err)
			}
		}
	}}
	sockets := outcome(t, stage, s)
	upgrades(t, sockets)
	if _, err := os.Stat(filepath.Join(fabric, "ds")); err != nil {
		t.Errorf("not made anew: %v", err)
	}
}

// Limits of the process: what does not fit stays on TCP with a reason, and the
// program has all that it had without the library.
func TestLimits(t *testing.T) {
	library := ds.Library(t)
	// The player itself has some around 200.
	const taken = "for n in {100..199}; do eval \"exec $n</dev/null\"; done"
	for _, v := range []struct{ name, commands, reason string }{
		{"few descriptors", "ulimit -Sn 210; " + taken, ""}, // ours go above the limit
		{"few descriptors for good", "ulimit -n 210; " + taken, "files"},
		{"small files", "ulimit -f 1", "untracked"},
		{"some address space", "ulimit -v 200000", ""},
		{"little address space", "ulimit -v 100000; export EXN_DS_WINDOW=16777216", "memory"},
	} {
		t.Run(v.name, func(t *testing.T) {
			stage := script.Stage{Player: behind(t, v.commands), Env: ds.Preload(library, ds.Fabric(t))}
			switch v.reason {
			case "":
				upgrades(t, outcome(t, stage, parse(t, conversation)))
			case "untracked":
				if diff := script.Diff(play(t, script.Stage{Player: stage.Player}, parse(t, conversation)), play(t, stage, parse(t, conversation))); diff != "" {
					t.Error(diff)
				}
			default:
				sockets := outcome(t, stage, parse(t, conversation))
				for _, end := range both {
					if s := sockets[end]; s.VELO.Sum()+s.RMA.Sum() > 0 || s.State == status.Lane {
						t.Errorf("end %c: %+v", end, s)
					}
				}
				if a, b := sockets[script.A].Reason.String(), sockets[script.B].Reason.String(); a != v.reason && b != v.reason {
					t.Errorf("reasons %q and %q, want %q at one end", a, b, v.reason)
				}
			}
		})
	}
}

// Memory: what lanes may take is bounded.
func TestMemoryBudget(t *testing.T) {
	library := ds.Library(t)
	stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t), "EXN_DS_MEMORY=8000")}
	sockets := outcome(t, stage, parse(t, conversation))
	if a, b := sockets[script.A].Reason.String(), sockets[script.B].Reason.String(); a != "memory" && b != "memory" {
		t.Errorf("reasons %q and %q, want memory at one end", a, b)
	}
}

// Without memory for a window much goes by TCP, and little by the lane.
func TestMemoryForSlots(t *testing.T) {
	library := ds.Library(t)
	stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t), "EXN_DS_MEMORY=50000", "EXN_DS_VELO_MAX=1")}
	sockets := outcome(t, stage, parse(t, conversation))
	for _, end := range both {
		if s := sockets[end]; s.State != status.Lane || s.Reason.String() != "memory" || s.VELO.Sum() == 0 || s.RMA.Sum() > 0 {
			t.Errorf("end %c: %+v", end, s)
		}
	}
}

// A cgroup with little memory: nobody is killed for memory that lanes touched.
func TestMemoryCgroup(t *testing.T) {
	library := ds.Library(t)
	dir := cgroup(t, limit{"/sys/fs/cgroup/memory", []string{"memory.limit_in_bytes=16777216"}}, limit{"/sys/fs/cgroup", []string{"memory.max=16777216"}})
	least := "EXN_DS_WINDOW_LEAST=4194304" // more than an eighth of that
	stage := script.Stage{Player: behind(t, "echo $$ >"+dir+"/cgroup.procs"),
		Env: ds.Preload(library, ds.Fabric(t), "EXN_DS_WINDOW=4194304", least, "EXN_DS_VELO_MAX=1")}
	sockets := outcome(t, stage, parse(t, conversation))
	for _, end := range both {
		if s := sockets[end]; s.State != status.Lane || s.RMA.Sum() > 0 {
			t.Errorf("end %c has a window: %+v", end, s)
		}
	}
}

// Who has less than two CPUs does not spin: it would be missing later. The server, which spins
// through each pause where it may, sleeps for each request. Sleeps are counted, as
// CPU time depends on who else runs.
func TestQuotaOfCPUs(t *testing.T) {
	var usable unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		t.Fatal(err)
	}
	var cpus []string
	for cpu := range len(usable) * 64 {
		if usable.IsSet(cpu) {
			cpus = append(cpus, strconv.Itoa(cpu))
		}
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs: with one it never spins")
	}
	if limits.CPUs() < 2 {
		t.Skip("needs the time of two CPUs: with a quota of less it never spins")
	}
	library, pump := ds.Library(t), built.Path(t, "pump")
	sleeps := func(group string) int64 {
		t.Helper()
		fabric := ds.Fabric(t)
		command := func(cpu string, args ...string) *exec.Cmd {
			args = append([]string{"taskset", "-c", cpu, pump}, args...)
			if group != "" {
				args = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}, args...)
			}
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Env = ds.Preload(library, fabric, "EXN_DS_SPIN_US=100000", "EXN_DS_REQUIRE=1")
			cmd.Stderr = os.Stderr
			return cmd
		}
		server := command(cpus[0], "serve", "127.0.0.1", "0")
		out, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		var port string
		if _, err := fmt.Fscanf(out, "ready %s\n", &port); err != nil {
			t.Error(err)
		}
		// Each request 10 ms after the other; in less than what it spins if it may.
		if err := command(cpus[1], "pingpong", "127.0.0.1", port, "1", "rate=100").Run(); err != nil {
			t.Error(err)
		}
		server.Process.Kill()
		server.Wait() // it was killed
		return server.ProcessState.SysUsage().(*syscall.Rusage).Nvcsw
	}
	may := sleeps("")
	mayNot := sleeps(cgroup(t, limit{"/sys/fs/cgroup/cpu", []string{"cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000"}}, limit{"/sys/fs/cgroup", []string{"cpu.max=150000 100000"}}))
	if may > mayNot/3 {
		t.Errorf("a server of 100 requests slept %d times, and with a quota of 1.5 CPUs %d", may, mayNot)
	}
}

// Another preloaded library may stand in front of the C library's calls that ours needs (beside.c),
// and come before it or after. What the program sees of it is not the library's time: none of its
// sleeps and spins may become endless.
func TestBesideAnotherLibrary(t *testing.T) {
	library := ds.Library(t)
	other := ds.Build(t, "beside.so", []string{"-shared", "-fPIC"}, "beside.c")
	for name, player := range map[string]string{
		"first":          behind(t, "export LD_PRELOAD="+other+":$LD_PRELOAD"),
		"last":           behind(t, "export LD_PRELOAD=$LD_PRELOAD:"+other),
		"in the program": ds.Build(t, "beside", []string{"-rdynamic"}, append(slices.Clone(script.PlayerSources), "beside.c")...),
	} {
		t.Run(name, func(t *testing.T) {
			stage := script.Stage{Player: player, Env: ds.Preload(library, ds.Fabric(t))}
			sockets := outcome(t, stage, parse(t, conversation+`b set d rcvtimeo 60
b recv d 1
b poll 60 d in
a write c 20
b recv d 10
b read d 10
`))
			for _, end := range both {
				if s := sockets[end]; s.State != status.Lane {
					t.Errorf("end %c: %+v", end, s)
				}
			}
		})
	}
}

// Who waits in its epoll set by syscall(2) takes lanes, and who does not wait but reads until there is something.
// Who waits by instructions of its own, as Bun, would not be told of what comes by a lane.
func TestWaitsInItsOwnWay(t *testing.T) {
	library := ds.Library(t)
	const set = "b e=epoll\nb ctl e add d in 7\n"
	for name, c := range map[string]struct {
		first, each string
		own         bool
	}{
		"syscall":     {set, "b rawwait e 400\n", false},
		"instruction": {set, "b ownwait e 400\n", true},
		"reads":       {strings.Repeat("b read d 20\n", 70), "", false},
		"few reads":   {"", "b read d 20\n", true}, // that find nothing, and one between them that does
	} {
		text := "script x\nopen\nb nonblock d 1\n" + c.first + strings.Repeat("a write c 10\n"+c.each+"b read d 20\nb write d 10\na read c 20\n", 80)
		sockets := outcome(t, script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}, parse(t, text))
		for _, end := range both {
			if s := sockets[end]; (s.State == status.Lane) == c.own || (s.Reason.String() == "raw system call") != (c.own && end == script.B) {
				t.Errorf("%s: end %c: %v, reason %v", name, end, s.State, s.Reason)
			}
		}
	}
}

// Who is loaded with RTLD_DEEPBIND finds the C library's functions before ours, and gets ours all the
// same, or those of another preloaded library before us: the player, whose calls are bound when it is
// loaded, or each when it is made.
func TestDeeplyBound(t *testing.T) {
	library := ds.Library(t)
	other := ds.Build(t, "beside.so", []string{"-shared", "-fPIC"}, "beside.c")
	for name, c := range map[string]struct{ flags, link string }{
		"now":  {"RTLD_NOW", "-Wl,-z,relro,-z,now"},
		"lazy": {"RTLD_LAZY", "-Wl,-z,lazy"},
	} {
		program := playerAs(t, "player.so", "-shared", "-fPIC", c.link)
		t.Run(name, func(t *testing.T) {
			deep := ds.Build(t, "deep", []string{"-DFLAGS=" + c.flags, `-DPROGRAM="` + program + `"`}, "deep.c")
			for _, preload := range []string{library, other + ":" + library, library + ":" + other} {
				stage := script.Stage{Player: deep, Env: append(ds.Preload(library, ds.Fabric(t)), "LD_PRELOAD="+preload)}
				sockets := outcome(t, stage, parse(t, conversation+`b&1 poll 4000 d in
a write c 100
b join 1
b read d 100
`))
				for _, end := range both {
					if s := sockets[end]; s.State != status.Lane {
						t.Errorf("with %s, end %c: %+v", preload, end, s)
					}
				}
			}
		})
		// Where a name is looked for depends on who asks; that may not be our library.
		t.Run(name+" by name", func(t *testing.T) {
			dir, base := filepath.Split(program)
			deep := ds.Build(t, "deep", []string{"-DFLAGS=" + c.flags, `-DPROGRAM="` + base + `"`, "-Wl,--enable-new-dtags,-rpath," + dir}, "deep.c")
			want, got := play(t, script.Stage{Player: deep}, parse(t, conversation)), play(t, script.Stage{Player: deep, Env: ds.Preload(library, ds.Fabric(t))}, parse(t, conversation))
			if diff := script.Diff(want, got); diff != "" {
				t.Errorf("TCP (-) and the library (+) differ:\n%s", diff)
			}
		})
	}
}

// A limit is what files of a cgroup below a directory are to hold.
type limit struct {
	root  string
	files []string // "name=value"
}

// cgroup makes one for the test with the first of the limits that can be had: those of
// version 1 first.
func cgroup(t *testing.T, limits ...limit) string {
	t.Helper()
	for _, l := range limits {
		if _, err := os.Stat(filepath.Join(l.root, "cgroup.procs")); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(l.root, "exn-test-")
		if err != nil {
			t.Skipf("needs a cgroup of its own: %v", err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		for _, file := range l.files {
			name, value, _ := strings.Cut(file, "=")
			if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644); err != nil {
				t.Skipf("no controller for a cgroup of its own: %v", err)
			}
		}
		return dir
	}
	t.Skip("no cgroups on this machine")
	return ""
}

// Ends in containers that share the network and the fabric directory. DSS-4:
// where a user namespace does not know its users, anybody might be the peer.
func TestContainers(t *testing.T) {
	library := ds.Library(t)
	const container = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: container}
	if err := probe.Run(); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root for namespaces of its own: %v", err)
	}
	t.Run("of one user namespace", func(t *testing.T) {
		stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t)), Unshare: container}
		upgrades(t, outcome(t, stage, parse(t, conversation)))
	})
	t.Run("of users that are not known there", func(t *testing.T) {
		stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t)), Unshare: container | unix.CLONE_NEWUSER}
		sockets := outcome(t, stage, parse(t, conversation))
		for _, end := range both {
			if s := sockets[end]; s.VELO.Sum()+s.RMA.Sum() > 0 || s.State == status.Lane {
				t.Errorf("end %c: %+v", end, s)
			}
		}
		if a, b := sockets[script.A].Reason.String(), sockets[script.B].Reason.String(); a != "proof" && b != "proof" {
			t.Errorf("reasons %q and %q, want proof at one end", a, b)
		}
	})
}

// A library of another version is a plain peer.
func TestOtherVersion(t *testing.T) {
	library := ds.Library(t)
	other := otherVersion(t)
	fabric := ds.Fabric(t)
	stage := script.Stage{Player: player(t), EnvOf: map[script.End][]string{
		script.A: ds.Preload(library, fabric), script.B: ds.Preload(other, fabric)}}
	sockets := outcome(t, stage, parse(t, conversation))
	for _, end := range both {
		if s := sockets[end]; s.VELO.Sum()+s.RMA.Sum() > 0 {
			t.Errorf("end %c: %+v", end, s)
		}
	}
	if a, b := sockets[script.A].Reason.String(), sockets[script.B].Reason.String(); a != "version" && b != "version" {
		t.Errorf("reasons %q and %q, want version at one end", a, b)
	}
}

// otherVersion builds the library with another version of its format.
func otherVersion(t *testing.T) string {
	t.Helper()
	return ds.Build(t, "libextds-99.so", []string{"-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic-functions", "-DLANE_VERSION_TESTED=99"}, ds.Sources(t)...)
}

// Which addresses upgrade: the same at both ends, different ones of one namespace
// only where the user names their subnet.
func TestAddresses(t *testing.T) {
	library := ds.Library(t)
	ns := netns.New(t)
	other := netns.New(t)
	netns.Veth(t, netns.End{NS: ns, Link: "exn-a", Addr: []string{"10.0.0.5/24"}}, netns.End{NS: other, Link: "exn-b"})
	ns.Do(t, func() {
		if text, err := exec.Command("ip", "address", "add", "10.0.0.6/24", "dev", "exn-a").CombinedOutput(); err != nil {
			t.Skipf("cannot add a second address: %v %s", err, text)
		}
	})
	for _, v := range []struct {
		name, subnets, server, client, reason string
	}{
		{"the same", "", "10.0.0.5", "10.0.0.5", ""},
		{"two, not named", "", "10.0.0.5", "10.0.0.6", "address"},
		{"two, named", "192.168.0.0/16,10.0.0.0/29", "10.0.0.5", "10.0.0.6", ""},
		{"two, others named", "10.0.0.0/30,::/0", "10.0.0.5", "10.0.0.6", "address"},
		{"loopback elsewhere", "", "127.0.0.2", "127.0.0.2", ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := parse(t, fmt.Sprintf(`script addresses
b l=listen %s
a c=socket 4
a bind c %s
a connect c %s $port
b d=accept l
warm
a write c 100000
b recv d 100000 waitall
`, v.server, v.client, v.server))
			ns.Do(t, func() {
				stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t), "EXN_DS_SUBNETS="+v.subnets)}
				sockets := outcome(t, stage, s)
				if v.reason == "" {
					upgrades(t, sockets)
				} else {
					staysOnTCP(t, sockets, both, v.reason)
				}
			})
		})
	}
}
