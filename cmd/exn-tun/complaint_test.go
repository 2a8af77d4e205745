package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/exn/capture"
	"exnet/exn/device"
	"exnet/mtu"
)

// What is wrong with the arguments is said in one line in the user's words, and a second line says
// where help is. Nothing is done.
func TestWrongUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"up --mtu 0":                    "--mtu 0: choose 68 or more, or leave it out for the largest",
		"up --mtu x":                    `--mtu: "x" is not a valid number`,
		"up --mtu 67":                   "MTU 67 of a TUN device: Linux takes 68 to 65535",
		"up --metrics=foo":              `--metrics "foo" is no address to listen at, such as 127.0.0.1:9750`,
		"up --metrics=127.0.0.1:99999":  `--metrics "127.0.0.1:99999" is no address to listen at, such as 127.0.0.1:9750`,
		"metrics --listen foo":          `--listen "foo" is no address to listen at, such as 127.0.0.1:9750`,
		"up --buffers 0":                "--buffers 0: choose 4 to 256",
		"up --buffers 999999999":        "--buffers 999999999: choose 4 to 256",
		"up --eager 999999999":          "--eager 999999999: choose 1 to 7670",
		"up --multicast-eager 7553":     "--multicast-eager 7553: choose 1 to 7552",
		"up --velo-budget 99999999":     "--velo-budget 99999999: choose 1 to 65536",
		"up --busy-poll x":              `--busy-poll: "x" is not a duration, such as 50us or 1s`,
		"up --busy-poll=-1s":            "--busy-poll -1s: it cannot be negative",
		"up --node -1":                  "--node: -1 cannot be negative",
		"up --fabric":                   "--fabric: needs a value",
		"up --mac-prefix x":             `--mac-prefix: "x": want four octets like 2e:87:04:07`,
		"up --addr 127.0.0.1/8":         "--addr: address 127.0.0.1/8 is a loopback address, which never leaves a host",
		"capture foo":                   `bad filter "foo": unknown word "foo"; exn-tun help capture describes filters`,
		"capture -c -1":                 "--count: -1 cannot be negative",
		"show sockets --node 3":         "--node and --name choose an interface, and sockets belong to programs; leave them out",
		"check":                         "no address to check: exn-tun check HOST:PORT",
		"check foo":                     `"foo" is no HOST:PORT, such as 127.0.0.1:6379 or [::1]:80`,
		"check 127.0.0.1:99999":         `"127.0.0.1:99999" is no HOST:PORT, such as 127.0.0.1:6379 or [::1]:80`,
		"version now":                   "unknown command or argument: now",
		"show sokets":                   "unknown command or argument: sokets",
		"":                              "no command is named",
		"run":                           "no program to run: exn-tun run -- CMD ARGS",
		"up --fabric " + file:           "fabric directory not trusted: " + file + " is not a directory; name another",
		"bridge --fabric " + file:       "fabric directory " + file + ": is not a directory; name another by --fabric or EXN_FABRIC",
		"show --fabric " + file:         "fabric directory " + file + ": is not a directory; name another",
		"show nodes --fabric " + file:   "fabric directory " + file + ": is not a directory; name another",
		"capture --fabric " + file:      "fabric directory " + file + ": is not a directory; name another",
		"show sockets --fabric " + file: "fabric directory " + file + ": is not a directory; name another by --fabric or EXN_FABRIC",
		"up --addr 10.1.0.1/24 --fabric /tmp/x --route /tmp/x/../x,addr=10.2.0.1/24":                            "--route /tmp/x/../x: the router has a port on that fabric already; give each fabric one port",
		"up --addr 10.1.0.1/24 --route /tmp/y,addr=10.2.0.1/24 --route /tmp/y,addr=10.3.0.1/24 --fabric /tmp/x": "--route /tmp/y: the router has a port on that fabric already; give each fabric one port",
	} {
		code, out, errs := call(t, plain, strings.Fields(args)...)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if code != exitUsage || out != "" || lines[0] != "exn-tun: "+want || len(lines) > 2 {
			t.Errorf("%q: exit code %d, printed %q, said %q, want %q", args, code, out, errs, want)
		}
		if len(lines) == 2 && !strings.HasPrefix(lines[1], "exn-tun help ") {
			t.Errorf("%q: the second line is %q", args, lines[1])
		}
	}
}

// The classes of errors and the names of packages are for programs.
func TestComplain(t *testing.T) {
	for want, err := range map[string]error{
		"plain":                             errors.New("plain"),
		"there":                             errors.New("exteth: control: up: there"),
		"MTU 3: too small":                  fmt.Errorf("up: MTU 3: too small: %w: %w", mtu.ErrRange, device.ErrConfig),
		`bad filter "x": no`:                fmt.Errorf("capture: %w", fmt.Errorf("%w \"x\": no", capture.ErrFilter)),
		"address: 10.0.0.1: of two colons":  errors.New("exn: address: 10.0.0.1: of two colons"),
		"interface exn0: device: is inside": errors.New("interface exn0: device: is inside"),
	} {
		if got := complain(err); got != want {
			t.Errorf("%q becomes %q, want %q", err, got, want)
		}
	}
}

// The mistake that somebody made names the command that explains it.
func TestAdvice(t *testing.T) {
	for args, want := range map[string]string{"up --fly": "exn-tun help up explains it.", "show counters --fly": "exn-tun help show counters explains it.", "fly": "exn-tun help lists the commands."} {
		if _, _, errs := call(t, plain, strings.Fields(args)...); !strings.Contains(errs, want+"\n") {
			t.Errorf("%q: said %q, want %q", args, errs, want)
		}
	}
}

func TestMembersOfABitmap(t *testing.T) {
	for bitmap, want := range map[uint64]string{0: "none", 1: "0", 1<<63 | 1<<5: "5,63"} {
		if got := members(bitmap); got != want {
			t.Errorf("%#x: %s, want %s", bitmap, got, want)
		}
	}
}
