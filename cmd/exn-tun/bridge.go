package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"exnet/directsockets/bridge"
	"exnet/fabric/directory"
	"exnet/fabric/shm"
)

type bridgeCommand struct {
	Names   []string `arg:"" name:"bridge" optional:"" help:"Names of bridges, such as docker0, and of veth interfaces that are on no bridge (default: all, including those made later)."`
	Fabric  string   `help:"The fabric directory of the programs in the containers (default: EXN_FABRIC, else /run/exn for root)." placeholder:"DIR"`
	Verbose bool     `help:"Log each address that comes or goes."`
}

// Help is the long text of --help.
func (*bridgeCommand) Help() string {
	return `A program under the library uses shared memory with a program in another network namespace only if root or its own user has registered which address is in which namespace. ` +
		`This command registers the addresses of containers on a bridge, such as Docker's (ip link show type bridge lists bridges), of containers that a route of the host reaches through a veth interface, as with Calico, ` +
		`and of the host itself there. It follows containers as they come and go.

A container needs no interface and no capability for that, only the fabric directory and the library: ` +
		`docker run -v DIR:DIR -v /usr/local/lib/libextds.so:/usr/local/lib/libextds.so:ro -e LD_PRELOAD=/usr/local/lib/libextds.so -e EXN_FABRIC=DIR.

It runs in the foreground until SIGTERM, SIGHUP or Ctrl-C, and then takes the addresses back. When it is ready, a line with "ready:" on standard error says so, and
systemd is told (Type=notify). The kernel may translate addresses between the two ends of a connection: for published ports, service addresses or a sidecar, by iptables or nftables, on the host or in a container. Then this command tells each end how the other one sees it.

	exn-tun bridge --fabric /run/exn-group docker0

Exit codes: 0 ended by a signal, 1 failed, 2 wrong usage, 4 not possible here (no root).`
}

// Run registers until a signal comes.
func (c *bridgeCommand) Run(errs messages) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // who read the log may go
	defer signal.Reset(syscall.SIGPIPE)
	if c.Fabric == "" {
		c.Fabric = shm.DefaultDir()
	}
	level := slog.LevelWarn
	if c.Verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level}))
	if err := directory.Check(c.Fabric, directory.Self()); err != nil {
		return err
	}
	made := os.Mkdir(c.Fabric, 0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return fmt.Errorf("fabric directory: %w", made)
	}
	r, err := bridge.Open(c.Fabric, c.Names, log)
	if err != nil {
		if made == nil {
			os.Remove(c.Fabric) // unless somebody else has come
		}
		return err
	}
	what := "all bridges and routes"
	if len(c.Names) > 0 {
		what = strings.Join(c.Names, ", ")
	}
	err = r.Run(ctx, func() {
		fmt.Fprintf(errs, "exn-tun: ready: %s: addresses in %s: %d\n", what, c.Fabric, r.Addresses())
		if err := notifyManager("READY=1\nSTATUS=" + what); err != nil {
			log.Warn("cannot tell the service manager", "err", err)
		}
	})
	return errors.Join(err, notifyManager("STOPPING=1"))
}
