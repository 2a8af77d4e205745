package script_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/test/ds"
)

// counted plays a program of ccode that judges what system calls the library makes; of the
// same source, with -DCOUNTER, is what is preloaded behind the library and counts them.
func counted(t *testing.T, name string, args, env []string) {
	t.Helper()
	counter := ds.Build(t, name+"-counter", []string{"-DCOUNTER", "-shared", "-fPIC"}, name+".c")
	program := ds.Build(t, name, nil, name+".c")
	library := ds.Library(t)
	ctx, cancel := context.WithTimeout(t.Context(), far)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), append(env, "EXN_DS_REQUIRE=1")...)...)
	for i, v := range cmd.Env {
		if strings.HasPrefix(v, "LD_PRELOAD=") {
			cmd.Env[i] = v + ":" + counter
		}
	}
	text, err := cmd.CombinedOutput()
	t.Logf("%s %v: %s", name, args, text)
	if err != nil {
		t.Error(err)
	}
}

// Who is told by poll or epoll and reads until there is nothing is not held up by a question to
// the kernel each time; who is not told, is. Of an end all are told.
func TestToldAskLess(t *testing.T) {
	for _, spin := range []string{"0", "100000"} {
		counted(t, "spared", nil, []string{"EXN_DS_SPIN_US=" + spin})
	}
}

// Who sleeps on one connection again and again makes one system call for it, and is told of its
// end, also where it sleeps on others in turn, or its signal handlers do.
func TestSleepsOnOne(t *testing.T) {
	for _, how := range []string{"read", "recv-timed", "poll", "poll-timed", "old-kernel", "select", "turns", "handlers"} {
		t.Run(how, func(t *testing.T) { counted(t, "alone", []string{how}, []string{"EXN_DS_SPIN_US=0"}) })
	}
}
