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
	Names   []string `arg:"" name:"bridge" optional:"" help:"Names of bridges, such as docker0, and of veth interfaces that are on none (default: all, also those that are made later)."`
	Fabric  string   `help:"The fabric directory of the programs in the containers (default: EXN_FABRIC, else /run/exn for root)." placeholder:"DIR"`
	Verbose bool     `help:"Log each address."`
}

// Help is the long text of --help.
func (*bridgeCommand) Help() string {
	return `Programs under the library take lanes to another network namespace only if somebody whom they trust, root or their own user, says which address is ` +
		`in which. This says it of the containers on a bridge, such as Docker's (ip link show type bridge lists them), of those that a route of the host leads to by a veth interface of their own, such as ` +
		`Calico's, and of the host's own addresses there: of those that are there, and as they come and go. They need no interface and no capability for that, only the fabric directory and the library: ` +
		`-v DIR:DIR -v /usr/local/lib/libextds.so:/usr/local/lib/libextds.so:ro -e LD_PRELOAD=/usr/local/lib/libextds.so -e EXN_FABRIC=DIR.

Runs in the foreground until SIGTERM or Ctrl-C, which take the addresses back. That it is ready is said on standard error, by a line with "ready:", and to
systemd (Type=notify). Where the kernel translates addresses on the way (published ports, addresses of services, redirection to a sidecar; iptables or nftables, here or in a container), it tells the two ends of a connection that looks for its peer how the other one sees it.

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
	if err := os.Mkdir(c.Fabric, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("fabric directory: %w", err)
	}
	r, err := bridge.Open(c.Fabric, c.Names, log)
	if err != nil {
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
