package apps_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// Built anywhere, it runs in containers whose C library is older: from Debian 10, Ubuntu 20.04
// and RHEL 8 on.
func TestOldCLibrary(t *testing.T) {
	f, err := elf.Open(built.Path(t, "libextds.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	needs, err := f.DynamicVersionNeeds()
	if err != nil || len(needs) == 0 {
		t.Fatalf("it needs %v, %v", needs, err)
	}
	for _, n := range needs {
		for _, d := range n.Needs {
			var minor int
			if _, err := fmt.Sscanf(d.Dep, "GLIBC_2.%d", &minor); err != nil || minor > 28 {
				t.Errorf("it needs %s of %s", d.Dep, n.Name)
			}
		}
	}
}

// SWI-1: preloaded into programs that have no connections, nothing changes.
func TestPreloadedInto(t *testing.T) {
	library := ds.Library(t)
	dir := t.TempDir()
	source := filepath.Join(dir, "x.c")
	if err := os.WriteFile(source, []byte("int main(void) { return 42; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"ls":      {"ls", "-l", "/usr/bin/"},
		"bash":    {"bash", "-c", "echo $((6*7)); (echo sub; exit 3); echo $?; for i in 1 2 3; do echo $i | cat; done; exec 5</etc/passwd; head -1 <&5; exit 7"},
		"gcc":     {"sh", "-c", "gcc -O2 -o " + dir + "/x " + source + " && " + dir + "/x; echo $?"},
		"git":     {"sh", "-c", "cd " + dir + " && git init -q repo$$ && cd repo$$ && git -c user.name=x -c user.email=x commit -q --allow-empty -m x && git log --format=%s && git fsck"},
		"python3": {"python3", "-c", "import subprocess,threading,os,select,tempfile; print(subprocess.check_output(['echo','x'])); r,w=os.pipe(); os.write(w,b'ab'); print(select.select([r],[],[],0)[0]==[r], os.read(r,9)); t=threading.Thread(target=print,args=(1,)); t.start(); t.join(); p=os.fork(); print(os.waitpid(p,0)[1]) if p else os._exit(5)"},
		"java":    {"java", "-version"},
		"apt-get": {"apt-get", "--version"},
		"missing": {"sh", "-c", "no-such-program; echo $?"},
		"closed":  {"sh", "-c", "exec 3<&- 4<&-; ls <&- >/dev/null; echo $?; cat <&- ; echo $?"},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skipf("no %s on this machine", command[0])
			}
			fabric := ds.Fabric(t)
			run := func(env []string) (string, int) {
				cmd := exec.CommandContext(t.Context(), program, command[1:]...)
				cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run() // the exit code is part of the result
				return out.String(), cmd.ProcessState.ExitCode()
			}
			want, wantCode := run(nil)
			got, code := run(ds.Preload(library, fabric))
			if got != want || code != wantCode {
				t.Errorf("with the library exit code %d and\n%.2000s\nwithout %d and\n%.2000s", code, got, wantCode, want)
			}
			left, err := os.ReadDir(fabric)
			if err != nil || len(left) > 0 {
				t.Errorf("left in the fabric directory: %v %v", left, err)
			}
		})
	}
}

// Somebody else's preloaded library stays at work beside ours.
func TestPreloadBesideAnother(t *testing.T) {
	library := ds.Library(t)
	other := ds.Build(t, "broken.so", []string{"-shared", "-fPIC"}, "broken.c")
	for _, order := range [][]string{{library, other}, {other, library}} {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "ls / | sort | head -3; echo $?")
		cmd.Env = append(os.Environ(), append(ds.Preload(library, ds.Fabric(t)), "LD_PRELOAD="+order[0]+":"+order[1])...)
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.HasSuffix(out, []byte("\n0\n")) {
			t.Errorf("%v: %v\n%s", order, err, out)
		}
	}
}

// Redis' allocator opens files while it begins, with its lock held, and that is the first call that the
// library sees: it must read its settings and a policy without allocating.
func TestPolicyBesideAllocator(t *testing.T) {
	root := debroot.Need(t, "redis-server", "redis-tools")
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	for _, program := range []string{"redis-server", "redis-cli"} {
		command := append([]string{"EXN_DS_POLICY=program redis-* EXN_DS_CALLS=9;connection redis-* any any any no;"}, ds.Preload(ds.Library(t), ds.Fabric(t))...)
		out, err := root.Command(ctx, "env", append(command, program, "--version")...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("edis")) {
			t.Errorf("%s --version: %v: %s", program, err, out)
		}
	}
}

// What it calls musl has, too, but for what it looks for first: the library is the same in Alpine's images.
func TestMuslHasWhatItNeeds(t *testing.T) {
	musl, err := elf.Open(ds.Musl(t))
	if err != nil {
		t.Fatal(err)
	}
	defer musl.Close()
	has := map[string]bool{}
	symbols, err := musl.DynamicSymbols()
	for _, s := range symbols {
		has[s.Name] = has[s.Name] || s.Section != elf.SHN_UNDEF
	}
	if err != nil || !has["recvmsg"] {
		t.Fatalf("musl's symbols: %v, %v", symbols, err)
	}
	library, err := elf.Open(built.Path(t, "libextds.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	symbols, err = library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	looked := []string{"_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "__gmon_start__", "__chk_fail", "__register_atfork",
		"__rseq_offset", "__rseq_size", "_r_debug", "dladdr1", "gnu_get_libc_version"}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && s.Name != "" && !has[s.Name] && (elf.ST_BIND(s.Info) != elf.STB_WEAK || !slices.Contains(looked, s.Name)) {
			t.Errorf("it needs %s, which musl does not have", s.Name)
		}
	}
}

// In a root where there is nothing but musl, a program and the library, connections with one of glibc outside
// have lanes both ways.
func TestMuslAlone(t *testing.T) {
	if out, err := exec.Command("unshare", "--mount", "mount", "--bind", "/", "/").CombinedOutput(); err != nil {
		t.Skipf("may not mount here: %v: %s", err, out)
	}
	sources, err := filepath.Glob(filepath.Join(ds.Headers(), "pump", "*.c"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("pump's sources: %q, %v", sources, err)
	}
	library, pump, fabric := ds.Library(t), ds.BuildMusl(t, "pump", []string{"-w"}, sources...), ds.Fabric(t)
	root := t.TempDir()
	for _, path := range []string{ds.Musl(t), library, pump} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(inside), 0o755), os.WriteFile(inside, text, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(root, fabric), 0o755), os.Mkdir(filepath.Join(root, "proc"), 0o755)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	defer cancel()
	env := append(os.Environ(), ds.Preload(library, fabric, "EXN_DS_VERBOSE=1", "EXN_DS_CALLS=2")...)
	server := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c",
		`mount --bind "$2" "$1$2" && mount --rbind /proc "$1/proc" && exec chroot "$1" "$3" serve 127.0.0.1 0`, "sh", root, fabric, pump)
	server.Env = env
	var log bytes.Buffer
	server.Stderr = &log
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var port string
	if _, err := fmt.Fscanf(out, "ready %s\n", &port); err != nil {
		server.Wait()
		t.Fatalf("the server: %v\n%s", err, log.String())
	}
	for _, mode := range []string{"stream", "pingpong"} {
		client := exec.CommandContext(ctx, built.Path(t, "pump"), mode, "127.0.0.1", port, "0.3", "check")
		client.Env = env
		text, err := client.CombinedOutput()
		if err != nil || !bytes.Contains(text, []byte(" has lane ")) {
			t.Errorf("%s: %v\n%s", mode, err, text)
		}
	}
	server.Process.Kill()
	server.Wait()
	if got := strings.Count(log.String(), " has lane "); got != 2 || strings.Contains(log.String(), "stays on TCP") {
		t.Errorf("the server had %d lanes:\n%s", got, log.String())
	}
}
