package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"exnet/directsockets/launch"
	"exnet/exn/netns"
)

// demoCommand shows on one machine what exnet is for.
type demoCommand struct {
	Duration time.Duration `help:"How long each measurement takes." default:"1s" placeholder:"TIME"`
	Rounds   int           `help:"How often each is made; medians are shown." default:"3" placeholder:"N"`
}

// Help is shown by exn-tun help demo.
func (*demoCommand) Help() string {
	return `Makes two network namespaces, joins them by a veth pair and by exn0 on a fabric of their own, and sends the same
small program (bin/pump) over both and over the loopback, then with EXT-DS preloaded over the loopback and over exn0.
Everything it makes is gone when it ends, however it ends; the machine's own network is not touched.

It needs root (exit code 4). Without root there are dsbench fabric, up --route, and programs with exn.Node.`
}

// Validate implements kong's check.
func (c *demoCommand) Validate() error {
	if c.Duration < 10*time.Millisecond || c.Rounds < 1 {
		return fmt.Errorf("--duration %v --rounds %d: measure at least once, for 10ms", c.Duration, c.Rounds)
	}
	return nil
}

// The addresses of the demonstration. Nobody else is in its namespaces.
const (
	demoPort     = "7000"
	demoVeth     = "10.1.0."
	demoExn      = "10.2.0."
	demoLoopback = "127.0.0.1"
)

// A demonstration is what was made and has to go again.
type demonstration struct {
	dir   string       // the fabric
	ns    [2]*netns.NS // where the two hosts are
	self  string       // exn-tun
	pump  string
	ds    bool // libextds.so is there
	after []func()
	line  *progress
}

// A demoPath is a way for bytes: from a client to a server.
type demoPath struct {
	name           string
	address        string
	client, server int  // which host
	ds             bool // by exn-tun run
}

func (c *demoCommand) Run(out output, errs messages) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	d := &demonstration{line: newProgress(errs.Writer)}
	defer d.end()
	defer func() {
		if ctx.Err() != nil && err != nil {
			err = errors.New("interrupted; nothing is left behind")
		}
	}()
	if err := d.begin(ctx); err != nil {
		return err
	}
	rtt, err := d.ping(ctx, demoExn+"1")
	if err != nil {
		return err
	}
	paths := d.paths()
	figures := make([][2][]float64, len(paths))
	for round := range c.Rounds {
		for i, p := range paths {
			for k, kind := range []string{"stream", "pingpong"} {
				d.line.say("round %d of %d: %s, %s", round+1, c.Rounds, p.name, kind)
				v, err := d.measure(ctx, p, kind, c.Duration)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", p.name, kind, err)
				}
				figures[i][k] = append(figures[i][k], v)
			}
		}
	}
	d.line.say("done")
	d.line.end()
	return report(out, paths, figures, rtt)
}

// begin makes everything. What it has made goes away by end, also after an error.
func (d *demonstration) begin(ctx context.Context) error {
	d.line.say("two namespaces and a veth pair")
	for i := range d.ns {
		ns, err := netns.New()
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("the demonstration needs root; without it try dsbench fabric --quick: %w", err)
		}
		if err != nil {
			return err
		}
		d.ns[i] = ns
		d.after = append(d.after, func() { ns.Close() })
	}
	var err error
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	d.pump = filepath.Join(filepath.Dir(d.self), "pump")
	if _, err := os.Stat(d.pump); err != nil {
		return fmt.Errorf("%w; build it with make", err)
	}
	_, err = launch.Library()
	d.ds = err == nil
	if d.dir, err = os.MkdirTemp("", "exn-demo-"); err != nil {
		return err
	}
	d.after = append(d.after, func() { os.RemoveAll(d.dir) })
	if err := netns.Veth(netns.End{NS: d.ns[0], Link: "veth0", Addr: []string{demoVeth + "1/24"}},
		netns.End{NS: d.ns[1], Link: "veth0", Addr: []string{demoVeth + "2/24"}}); err != nil {
		return err
	}
	for i := range d.ns {
		n := strconv.Itoa(i + 1)
		d.line.say("exn0 of node %s", n)
		cmd := exec.Command(d.self, "up", "--fabric", d.dir+"/fabric", "--node", n, "--netns", d.ns[i].String(), "--addr", demoExn+n+"/24")
		if err := d.start(ctx, cmd, cmd.Start, &cmd.Stderr, "exn-tun: ready: "); err != nil {
			return fmt.Errorf("exn-tun up of node %s: %w", n, err)
		}
	}
	return nil
}

// paths are the ways to compare. EXT-DS is shown on the loopback, where every
// kernel's TCP is at its best, and between the namespaces, as between containers.
func (d *demonstration) paths() []demoPath {
	all := []demoPath{
		{name: "veth", address: demoVeth + "1", client: 1},
		{name: "exn0", address: demoExn + "1", client: 1},
		{name: "loopback", address: demoLoopback},
	}
	if d.ds {
		all = append(all, demoPath{name: "loopback, EXT-DS", address: demoLoopback, ds: true},
			demoPath{name: "exn0, EXT-DS", address: demoExn + "1", client: 1, ds: true})
	}
	return all
}

// start starts a program that goes on, and waits for the line that says it is ready.
// stream is where it says so.
func (d *demonstration) start(ctx context.Context, cmd *exec.Cmd, start func() error, stream *io.Writer, ready string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	*stream = w
	// It dies with us, and a Ctrl-C on the terminal is for us to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	err = start()
	w.Close()
	if err != nil {
		r.Close()
		return err
	}
	d.after = append(d.after, func() { terminate(cmd) })
	defer context.AfterFunc(ctx, func() { r.SetReadDeadline(time.Now()) })()
	// What it says later is read, too: it would die of a pipe that nobody reads.
	defer func() {
		go func() {
			_, _ = io.Copy(io.Discard, r)
			r.Close()
		}()
	}()
	var said strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ready) {
			return nil
		}
		said.WriteString("\n" + lines.Text())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("it ended before it was ready:%s", said.String())
}

// terminate ends a program in order, or after two seconds without.
func terminate(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(2*time.Second, func() { cmd.Process.Kill() })
	defer kill.Stop()
	_ = cmd.Wait() // how it ended does not matter any more
}

// program is the pump on a path. With EXT-DS it must not stay on TCP.
func (d *demonstration) program(ctx context.Context, p demoPath, kind string, more ...string) *exec.Cmd {
	args := append([]string{d.pump, kind, p.address, demoPort}, more...)
	if p.ds {
		args = append([]string{d.self, "run", "--require", "--fabric", d.dir + "/fabric", "--"}, args...)
	}
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// measure runs one client against a server of its own.
func (d *demonstration) measure(ctx context.Context, p demoPath, kind string, duration time.Duration) (float64, error) {
	made := len(d.after)
	server := d.program(ctx, p, "serve")
	defer func() { // the server only
		for _, f := range d.after[made:] {
			f()
		}
		d.after = d.after[:made]
	}()
	if err := d.start(ctx, server, func() error { return d.ns[p.server].Start(server) }, &server.Stdout, "ready"); err != nil {
		return 0, err
	}
	client := d.program(ctx, p, kind, fmt.Sprint(duration.Seconds()))
	client.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var stdout, stderr bytes.Buffer
	client.Stdout, client.Stderr = &stdout, &stderr
	err := d.ns[p.client].Start(client)
	if err == nil {
		err = client.Wait()
	}
	if err != nil {
		return 0, fmt.Errorf("%w %s", err, stderr.String())
	}
	return strconv.ParseFloat(strings.TrimSpace(stdout.String()), 64)
}

func (d *demonstration) end() {
	d.line.end()
	for _, f := range slices.Backward(d.after) {
		f()
	}
}

// report prints the table.
func report(out output, paths []demoPath, figures [][2][]float64, rtt time.Duration) error {
	fmt.Fprintf(out, "ping over exn0: answered, %v at best, no hop between\n\n", rtt.Round(time.Microsecond))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "PATH\tONE STREAM\t× VETH\t64 B, HALF ROUND TRIP\t× VETH")
	for i, p := range paths {
		gbit, us := median(figures[i][0]), median(figures[i][1])
		fmt.Fprintf(w, "%s\t%.1f Gbit/s\t%.2f\t%.1f us\t%.2f\n", p.name, gbit, gbit/median(figures[0][0]), us, us/median(figures[0][1]))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\nMedians of this machine at this moment; dsbench exn measures with more care.")
	return err
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
