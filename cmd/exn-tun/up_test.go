package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"exnet/test/netns"
)

// A daemon says that it is ready, answers, and takes everything with it.
func TestUp(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", manager.LocalAddr().String())
	told := func() string {
		b := make([]byte, 1000)
		n, err := manager.Read(b)
		if err != nil {
			t.Error(err)
		}
		return string(b[:n])
	}
	p, ready := up(t, ns, dir, "--node", "7", "--name", "exn7", "--addr", "10.2.0.7/24", "--addr", "fd00::7/64", "--mtu", "9000",
		"--offload", "csum,tso", "--mode", "irq", "--itr", "dynamic", "--eager", "240", "--via", "10.3.0.0/16=10.2.0.1", "--no-follow", "--verbose")
	for _, want := range []string{"exn7 is up: node 7 of " + dir, "2e:87:04:07:00:07", "MTU 9000", "10.2.0.7/24, fd00::7/64, fe80::2c87:4ff:fe07:7/64"} {
		if !strings.Contains(ready, want) {
			t.Errorf("%q does not say %q", ready, want)
		}
	}
	if s := told(); !strings.HasPrefix(s, "READY=1\n") {
		t.Errorf("systemd was told %q", s)
	}
	code, out, errs := call(t, plain, "show", "--fabric", dir)
	listing := `^exn7: flags=4305<UP,POINTOPOINT,RUNNING,NOARP,MULTICAST>  mtu 9000
        inet 10\.2\.0\.7  netmask 255\.255\.255\.0  broadcast 10\.2\.0\.255
        inet6 fd00::7  prefixlen 64  scopeid 0x0<global>
        inet6 fe80::2c87:4ff:fe07:7  prefixlen 64  scopeid 0x20<link>
        ether 2e:87:04:07:00:07  txqueuelen 1000  \(Ethernet\)
        RX packets \d+  bytes \d+ \(.*\)
        RX errors 0  dropped 0  overruns 0  frame 0
        TX packets \d+  bytes \d+ \(.*\)
        TX errors 0  dropped \d+ overruns 0  carrier 0  collisions 0
`
	if code != exitDone || !regexp.MustCompile(listing).MatchString(out) {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if code, out, _ := call(t, plain, "show", "napi", "--fabric", dir); code != exitDone ||
		!strings.HasPrefix(out, "mode interrupt  busy-poll 0s  itr dynamic  eager 240 ") || !strings.Contains(out, "\nfollows no program: it is switched off\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	for _, what := range []string{"nodes", "neighbours", "groups", "counters", "counters --all"} {
		if code, out, errs := call(t, plain, append([]string{"show", "--fabric", dir, "--name", "exn7"}, strings.Fields(what)...)...); code != exitDone || !strings.Contains(out, "\n") {
			t.Errorf("show %s: exit code %d, %s%s", what, code, out, errs)
		}
	}
	ns.Do(t, func() {
		link, err := netlink.LinkByName("exn7")
		if err == nil {
			err = netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 2, 0, 99), Mask: net.CIDRMask(24, 32)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for held := "inet 10.2.0.99  netmask 255.255.255.0  broadcast 10.2.0.255\n"; ; { // given by hand, and claimed
		if _, out, _ := call(t, plain, "show", "--fabric", dir); strings.Contains(out, held) {
			break
		}
	}
	ns.Do(t, func() {
		routes, err := netlink.RouteGet(net.IPv4(10, 3, 0, 1))
		if err != nil || len(routes) != 1 || routes[0].Gw.String() != "10.2.0.1" {
			t.Errorf("routes %v, %v", routes, err)
		}
	})
	if code := p.end(syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.log.String())
	}
	if s := told(); s != "STOPPING=1" {
		t.Errorf("systemd was told %q", s)
	}
	if left := append(interfaces(t, ns), leftovers(t, dir)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if code, _, errs := call(t, plain, "show", "--fabric", dir); code != exitFailed || !strings.Contains(errs, "exn-tun up") {
		t.Errorf("show without a daemon: exit code %d, %s", code, errs)
	}
}

// Every signal that asks a daemon to end takes the interface away.
func TestSignals(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		p, _ := up(t, ns, dir, "--addr", "10.2.0.7/24")
		if code := p.end(sig); code != exitDone {
			t.Errorf("%v: exit code %d: %s", sig, code, p.log.String())
		}
		if left := append(interfaces(t, ns), leftovers(t, dir)...); len(left) > 0 {
			t.Errorf("%v: left behind: %v", sig, left)
		}
	}
	// Also while it is not ready yet.
	p := start(t, "up", "--fabric", dir, "--netns", ns.String(), "--addr", "10.2.0.7/24")
	for len(interfaces(t, ns)) == 0 {
		select {
		case <-p.over:
			t.Fatalf("exit code %d: %s", p.wait(), p.log.String())
		default:
		}
	}
	if code := p.end(syscall.SIGTERM); code != exitDone {
		t.Errorf("while claiming: exit code %d: %s", code, p.log.String())
	}
	if left := append(interfaces(t, ns), leftovers(t, dir)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a killed daemon left is adopted, and then removed in order.
func TestAdoption(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	p, _ := up(t, ns, dir, "--node", "7", "--addr", "10.2.0.7/24")
	if code := p.end(syscall.SIGKILL); code != -int(syscall.SIGKILL) {
		t.Errorf("exit code %d", code)
	}
	if left := interfaces(t, ns); !slices.Equal(left, []string{"exn0"}) {
		t.Fatalf("after kill -9 there are %v", left)
	}
	if code, _, errs := call(t, plain, "show", "--fabric", dir, "--node", "7"); code != exitFailed || !strings.Contains(errs, "is exn-tun up running?") {
		t.Errorf("show after kill -9: exit code %d, %s", code, errs)
	}
	p, ready := up(t, ns, dir, "--node", "7", "--addr", "10.2.0.7/24")
	if !strings.Contains(ready, "was left by a crash") {
		t.Errorf("%q does not tell of the crash", ready)
	}
	var got struct{ Interface struct{ Adopted bool } }
	code, out, errs := call(t, plain, "show", "--fabric", dir, "--json")
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitDone || !got.Interface.Adopted {
		t.Errorf("exit code %d, %v, %s%s", code, err, out, errs)
	}
	if code := p.end(syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code %d: %s", code, p.log.String())
	}
	if left := append(interfaces(t, ns), leftovers(t, dir)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// With several daemons on a fabric, show wants to be told which.
func TestSeveralDaemons(t *testing.T) {
	a, b, dir := netns.New(t), netns.New(t), newFabric(t)
	up(t, a, dir, "--node", "7", "--addr", "10.2.0.7/24")
	up(t, b, dir, "--node", "8", "--addr", "10.2.0.8/24", "--name", "exn8", "--metrics", "127.0.0.1:0")
	if code, _, errs := call(t, plain, "show", "--fabric", dir); code != exitFailed || !strings.Contains(errs, "7 (exn0), 8 (exn8)") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for _, flags := range [][]string{{"--node", "8"}, {"--name", "exn8"}} {
		if code, out, errs := call(t, plain, append([]string{"show", "--fabric", dir}, flags...)...); code != exitDone || !strings.HasPrefix(out, "exn8: ") {
			t.Errorf("%v: exit code %d, %s%s", flags, code, out, errs)
		}
	}
	for _, flags := range [][]string{{"--node", "9"}, {"--name", "exn9"}} {
		if code, out, errs := call(t, plain, append([]string{"show", "--fabric", dir}, flags...)...); code != exitFailed || !strings.Contains(errs, "no daemon answers") {
			t.Errorf("%v: exit code %d, %s%s", flags, code, out, errs)
		}
	}
	code, out, errs := call(t, plain, "show", "nodes", "--fabric", dir, "--node", "7")
	if code != exitDone || !regexp.MustCompile(`(?m)^8 .* 2e:87:04:07:00:08 +65535 +csum`).MatchString(out) {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	watch := start(t, "show", "counters", "--fabric", dir, "--node", "8", "--watch", "--json")
	for range 2 {
		line, err := watch.out.ReadBytes('\n')
		if err != nil || !json.Valid(line) {
			t.Errorf("%s, %v: %s", line, err, watch.log.String())
		}
	}
	if code := watch.end(syscall.SIGINT); code != exitDone {
		t.Errorf("watching: exit code %d: %s", code, watch.log.String())
	}
}

func TestMetrics(t *testing.T) {
	ns, dir := netns.New(t), newFabric(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().String()
	code, _, errs := call(t, plain, "up", "--fabric", dir, "--netns", ns.String(), "--metrics", taken)
	if code != exitFailed || !strings.Contains(errs, "choose a free port") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	l.Close()
	up(t, ns, dir, "--node", "7", "--metrics", taken)
	text := scrape(t, taken)
	for _, want := range []string{`exn_carrier{node="7",interface="exn0"} 1`, `exn_register{node="7",interface="exn0",register="node"} 7`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, addr string) string {
	t.Helper()
	answer, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%v, %v", answer, err)
	}
	checkMetrics(t, string(text))
	return string(text)
}

// checkMetrics checks the text format: every sample has its family above it, once,
// and no sample is there twice.
func checkMetrics(t *testing.T, text string) {
	t.Helper()
	sample := regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z]+="[^"\\]*",?)+\}) (\d+(?:\.\d+)?(?:e[+-]\d+)?)$`)
	family, seen := "", make(map[string]bool)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if head, ok := strings.CutPrefix(line, "# TYPE "); ok {
			family = strings.Fields(head)[0]
			if seen[family] {
				t.Errorf("family %s is there twice", family)
			}
			seen[family] = true
			continue
		}
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || m[1] != family || seen[m[1]+m[2]] {
			t.Errorf("in family %q: %s", family, line)
			continue
		}
		seen[m[1]+m[2]] = true
	}
}

// Every kind of bad input has its exit code and its remedy, and leaves nothing.
func TestBadInput(t *testing.T) {
	ns, other, dir := netns.New(t), netns.New(t), newFabric(t)
	netns.Veth(t, netns.End{NS: other, Link: "exn0"}, netns.End{NS: other, Link: "peer"})
	up(t, netns.New(t), dir, "--node", "7", "--addr", "10.2.0.7/24")
	foreign := newFabric(t)
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(foreign, "fabric"), []byte(`{"exnet fabric": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "exn.toml")
	if err := os.WriteFile(config, []byte("node = 8\n\nadress = '10.2.0.8/24'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := leftovers(t, dir)
	for _, c := range []struct {
		how  string
		args string // a later flag wins
		code int
		says string
	}{
		{noRoot, "", exitImpossible, "run as root"},
		{noDevice, "", exitImpossible, "modprobe tun"},
		{plain, "--netns exnet-no-such", exitImpossible, "ip netns add"},
		{plain, "--netns " + other.String(), exitTaken, "is there already and not ours, but a veth"},
		{plain, "--node 7", exitTaken, "node ID 7 is taken by pid"},
		{plain, "--addr 10.2.0.7/24", exitTaken, "10.2.0.7 is in use by node 7"},
		{plain, "--fabric " + foreign, exitVersion, "has format 2, this program speaks 1"},
		{plain, "--fabric /dev/null", exitUsage, "not a directory"},
		{plain, "--config " + config, exitUsage, config + `:3: unknown key "adress"`},
		{plain, "--config /no/such.toml", exitUsage, "/no/such.toml"},
		{plain, "--name exn0123456789abcdef", exitUsage, "the kernel takes 15"},
		{plain, "--mtu 65536", exitUsage, "68 to 65535"},
		{plain, "--mtu 65522 --tap", exitUsage, "68 to 65521"},
		{plain, "--node 65535", exitUsage, "go up to 65534"},
		{plain, "--addr 10.2.0.8", exitUsage, "like 10.2.0.8/24"},
		{plain, "--addr 10.2.0.255/24", exitUsage, "broadcast"},
		{plain, "--addr fd00::8/64 --mtu 1000", exitUsage, "1280"},
		{plain, "--mode poll", exitUsage, `"napi","irq"`},
		{plain, "--itr sometimes", exitUsage, "off, dynamic"},
		{plain, "--offload tso", exitUsage, "add csum"},
		{plain, "--mac-prefix 2f:00:00:00", exitUsage, "multicast"},
		{plain, "--busy-poll -1s", exitUsage, "--busy-poll"},
		{plain, "--rma-budget 0", exitUsage, "--rma-budget"},
		{plain, "--eager 1000000", exitUsage, "ager"},
		{plain, "--via 10.3.0.0/16=fd00::1", exitUsage, "is no route"},
		{plain, "--via 10.3.0.0/16=10.9.0.1", exitUsage, "in the subnet"},
		{plain, "--metrics nowhere", exitUsage, "metrics"},
		{plain, "something", exitUsage, "something"},
	} {
		args := append([]string{"up", "--fabric", dir, "--netns", ns.String()}, strings.Fields(c.args)...)
		code, out, errs := call(t, c.how, args...)
		if code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%s %s: exit code %d, want %d; %q does not say %q", c.how, c.args, code, c.code, errs, c.says)
		}
		if strings.Count(errs, "\n") > 2 {
			t.Errorf("%s %s: a long story: %s", c.how, c.args, errs)
		}
		if left := interfaces(t, ns); len(left) > 0 {
			t.Errorf("%s %s: left behind: %v", c.how, c.args, left)
		}
		if now := leftovers(t, dir); !slices.Equal(now, before) {
			t.Errorf("%s %s: the fabric has %v, had %v", c.how, c.args, now, before)
		}
	}
}

// An up that fails takes a fabric directory that it made with it, and no other.
func TestFailedUpOnNewFabric(t *testing.T) {
	ns := netns.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ how, args string }{
		{noDevice, ""},
		{plain, "--netns exnet-no-such"},
		{plain, "--metrics " + l.Addr().String()},
		{plain, "--route NEW,addr=10.3.0.1/24 --route /dev/null,addr=10.4.0.1/24"},
	} {
		parent := t.TempDir()
		args := append([]string{"up", "--addr", "10.2.0.8/24"}, strings.Fields(strings.ReplaceAll(c.args, "NEW", filepath.Join(parent, "second")))...)
		if !strings.Contains(c.args, "--route") {
			args = slices.Insert(args, 1, "--netns", ns.String())
		}
		code, _, errs := call(t, c.how, append(args, "--fabric", filepath.Join(parent, "new"))...)
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 || code == exitDone {
			t.Errorf("%s %s: exit code %d, left behind: %v, %v; %s", c.how, c.args, code, left, err, errs)
		}
		old := filepath.Join(parent, "old")
		if err := os.Mkdir(old, 0o700); err != nil {
			t.Fatal(err)
		}
		code, _, errs = call(t, c.how, append(args, "--fabric", old)...)
		if left, err := os.ReadDir(parent); err != nil || len(left) != 1 || code == exitDone {
			t.Errorf("%s %s: exit code %d, of a directory that was there: %v, %v; %s", c.how, c.args, code, left, err, errs)
		}
	}
}
