package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os/signal"
	"slices"
	"syscall"

	"exnet/directsockets/status"
)

type metricsCommand struct {
	Listen string `help:"Serve the metrics at http://ADDR/metrics until Ctrl-C, instead of printing them once." placeholder:"ADDR"`
	Fabric string `help:"Count only programs with this fabric directory (default: all programs)." placeholder:"DIR"`
}

// Help is the long text of --help.
func (*metricsCommand) Help() string {
	return `The figures of exn-tun show sockets, summed by program. They cover the connections that are open now. Bytes of closed connections are lost, ` +
		`because no daemon keeps them. You see your own programs; root sees those of all users. ` +
		`exn-tun up --metrics serves the metrics of the interface.`
}

// Validate implements kong's check.
func (c *metricsCommand) Validate() error {
	if c.Listen == "" {
		return nil
	}
	return checkListen("listen", c.Listen)
}

// Run implements the command.
func (c *metricsCommand) Run(out output, messages messages) error {
	if c.Listen == "" {
		return c.write(out)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	m, err := serveMetrics(c.Listen, c.write, slog.New(slog.NewTextHandler(messages, nil)))
	if err != nil {
		return err
	}
	fmt.Fprintf(messages, "exn-tun: metrics are at http://%v/metrics\n", m.addr)
	<-ctx.Done()
	return m.Close()
}

func (c *metricsCommand) write(w io.Writer) error {
	rows, err := new(showSocketsCommand).rows(c.Fabric)
	if err == nil {
		rows.writeMetrics(w)
	}
	return err
}

func (rows socketRows) writeMetrics(w io.Writer) {
	connections, bytes := make(map[string]int), make(map[string]uint64)
	for _, r := range rows.Sockets {
		connections[fmt.Sprintf("program=%q,state=%q,reason=%q", r.Program, r.State, r.Reason)]++
		for path, b := range map[string]status.Bytes{"tcp": r.TCP, "velo": r.VELO, "rma": r.RMA} {
			bytes[fmt.Sprintf("program=%q,path=%q,direction=%q", r.Program, path, "read")] += b.Read
			bytes[fmt.Sprintf("program=%q,path=%q,direction=%q", r.Program, path, "written")] += b.Written
		}
	}
	m := metricWriter{w, ""}
	m.family("exn_ds_connections", "gauge", "Connections by state, and the reason why they are on TCP, or were.")
	for _, labels := range slices.Sorted(maps.Keys(connections)) {
		m.sample("exn_ds_connections", labels, connections[labels])
	}
	m.family("exn_ds_connection_bytes", "gauge", "Bytes of the connections that are open now, by the way that they took.")
	for _, labels := range slices.Sorted(maps.Keys(bytes)) {
		m.sample("exn_ds_connection_bytes", labels, bytes[labels])
	}
	m.family("exn_ds_unreadable_processes", "gauge", "Programs with the library whose connections cannot be read, such as those of another version.")
	m.sample("exn_ds_unreadable_processes", "", len(rows.Problems))
}
