package apps_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
	"exnet/test/netns"
)

// Where the kernel translates an address the two ends cannot find each other, and are told why.
func TestTranslatedAddress(t *testing.T) {
	library, tun := ds.Library(t), built.Path(t, "exn-tun")
	pumps := map[string]string{"C": built.Path(t, "pump"), "Go": built.Path(t, "gopump")}
	root, ns := debroot.Need(t, "nftables"), netns.New(t)
	fabric := ds.Fabric(t)
	if err := os.Chmod(fabric, 0o2770); err != nil { // a group's: without a board each end asks the kernel
		t.Fatal(err)
	}
	const listens, dialled = "7001", "7000"
	rules := root.Command(t.Context(), "nft", "add table ip nat; add chain ip nat out { type nat hook output priority -100; }; "+
		"add rule ip nat out tcp dport "+dialled+" redirect to :"+listens)
	if text, err := output(ns, rules); err != nil {
		t.Skipf("no translation of addresses here: %v: %s", err, text)
	}
	for language, pump := range pumps {
		t.Run(language, func(t *testing.T) {
			env := append(os.Environ(), ds.Preload(library, fabric, "EXN_DS_VERBOSE=1")...)
			args := []string{"pingpong", "127.0.0.1", dialled, "3"}
			if language == "Go" {
				env = append(os.Environ(), "EXN_FABRIC="+fabric, "EXN_DS_VERBOSE=1")
				args = append(args, "either")
			}
			server := exec.CommandContext(t.Context(), pump, "serve", "127.0.0.1", listens)
			server.Env = env
			var log bytes.Buffer
			server.Stderr = &log
			ready, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := ns.Start(server); err != nil {
				t.Fatal(err)
			}
			if _, err := ready.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			client := exec.CommandContext(t.Context(), pump, args...)
			client.Env = env
			text, err := output(ns, client)
			if err != nil {
				t.Errorf("pingpong: %v: %s", err, text)
			}
			check, _ := output(ns, exec.CommandContext(t.Context(), tun, "check", "--fabric", fabric, "127.0.0.1:"+dialled))
			if !strings.Contains(check, "nat: the other end is 127.0.0.1:"+listens) {
				t.Errorf("check says %s", check)
			}
			server.Process.Kill()
			server.Wait()
			for end, text := range map[string]string{"client": text, "server": log.String()} {
				if !strings.Contains(text, "stays on TCP: nat") {
					t.Errorf("the %s does not say so:\n%s", end, text)
				}
			}
		})
	}
}

// output runs a command in a namespace.
func output(ns *netns.NetNS, cmd *exec.Cmd) (string, error) {
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := ns.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return text.String(), err
}
