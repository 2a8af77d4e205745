package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Metrics in the text format of Prometheus, version 0.0.4: one sample per line, all
// samples of a name together. It needs no library: every name and label is our own,
// so that nothing has to be escaped but names of interfaces and programs.

// writeMetrics writes all that a daemon knows as metrics.
func writeMetrics(w io.Writer, s *state) {
	m := metricWriter{w, fmt.Sprintf("node=\"%d\",interface=%q", s.Interface.Node, s.Link.Name)}
	i := s.Interface
	m.family("exn_carrier", "gauge", "Whether the interface has a carrier.")
	m.sample("exn_carrier", "", number(i.Carrier))
	m.family("exn_uptime_seconds", "gauge", "How long the daemon has run.")
	m.sample("exn_uptime_seconds", "", i.Uptime.Seconds())
	m.family("exn_mtu_bytes", "gauge", "The MTU of the interface.")
	m.sample("exn_mtu_bytes", "", s.Link.MTU)
	m.family("exn_peers", "gauge", "Other nodes attached to the fabric.")
	m.sample("exn_peers", "", len(i.Peers))
	m.family("exn_neighbours", "gauge", "Entries of the neighbour table by state.")
	states := make(map[string]int)
	for _, n := range i.Neighbours {
		states[strings.ToLower(n.State)]++
	}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		m.sample("exn_neighbours", fmt.Sprintf(",state=%q", name), states[name])
	}
	m.family("exn_groups", "gauge", "Multicast groups joined.")
	m.sample("exn_groups", "", len(i.Groups))

	f := i.Statistics
	for _, c := range []struct {
		name string
		v    uint64
	}{
		{"receive_packets", f.RXPackets}, {"receive_bytes", f.RXBytes}, {"receive_errors", f.RXErrors}, {"receive_dropped", f.RXDropped},
		{"receive_overruns", f.RXOverruns}, {"receive_frame", f.RXFrame}, {"transmit_packets", f.TXPackets}, {"transmit_bytes", f.TXBytes},
		{"transmit_errors", f.TXErrors}, {"transmit_dropped", f.TXDropped}, {"transmit_overruns", f.TXOverruns}, {"transmit_carrier", f.TXCarrier},
	} {
		m.counter("exn_"+c.name+"_total", c.v)
	}
	m.family("exn_counter_total", "counter", "All counters of the interface, lost packets by reason; see exn-tun show counters.")
	for _, name := range slices.Sorted(maps.Keys(i.Counters)) {
		m.sample("exn_counter_total", fmt.Sprintf(",counter=%q", name), i.Counters[name])
	}
	// Some registers are counters, some are not; Prometheus calls that untyped.
	m.family("exn_register", "untyped", "The register file of the node on the fabric.")
	for _, name := range slices.Sorted(maps.Keys(s.Registers)) {
		m.sample("exn_register", fmt.Sprintf(",register=%q", name), s.Registers[name])
	}
	m.perSource(s)
	m.perPeer(s)
}

func (m metricWriter) perSource(s *state) {
	for _, c := range []struct {
		name string
		of   func(k int) uint64
	}{
		{"polls", func(k int) uint64 { return s.Interface.NAPI.Sources[k].Stats.Polls }},
		{"polls_exhausted", func(k int) uint64 { return s.Interface.NAPI.Sources[k].Stats.Exhausted }},
		{"work", func(k int) uint64 { return s.Interface.NAPI.Sources[k].Stats.Work }},
		{"interrupts", func(k int) uint64 { return s.Interface.NAPI.Sources[k].Stats.Interrupts }},
		{"throttled", func(k int) uint64 { return s.Interface.NAPI.Sources[k].Stats.Throttled }},
	} {
		name := "exn_napi_" + c.name + "_total"
		m.family(name, "counter", "Of each source; see exn-tun show napi.")
		for k, src := range s.Interface.NAPI.Sources {
			m.sample(name, fmt.Sprintf(",source=%q", src.Name), c.of(k))
		}
	}
}

func (m metricWriter) perPeer(s *state) {
	m.family("exn_peer_waiting", "gauge", "Frames that wait for a peer.")
	for _, p := range s.Interface.Peers {
		m.sample("exn_peer_waiting", fmt.Sprintf(",peer=\"%d\"", p.Node), p.Waiting)
	}
	m.family("exn_peer_outstanding", "gauge", "Frames advertised to a peer and not fetched yet.")
	for _, p := range s.Interface.Peers {
		m.sample("exn_peer_outstanding", fmt.Sprintf(",peer=\"%d\"", p.Node), p.Out)
	}
}

// A metricWriter writes samples with the labels that all have.
type metricWriter struct {
	w      io.Writer
	labels string
}

func (m metricWriter) family(name, kind, help string) {
	fmt.Fprintf(m.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m metricWriter) sample(name, labels string, v any) {
	fmt.Fprintf(m.w, "%s{%s%s} %v\n", name, m.labels, labels, v)
}

func (m metricWriter) counter(name string, v uint64) {
	m.family(name, "counter", "As the interface's statistics say; see exn-tun show interface.")
	m.sample(name, "", v)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A metricsServer answers GET /metrics.
type metricsServer struct {
	server http.Server
	addr   net.Addr
	done   chan struct{}
}

// serveMetrics listens in the namespace of this process, not the interface's.
func serveMetrics(addr string, write func(io.Writer) error, log *slog.Logger) (*metricsServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w; choose a free address of this host, such as 127.0.0.1:9750", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var page bytes.Buffer
		if err := write(&page); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		page.WriteTo(w) // who asks may be gone
	})
	const patience = 10 * time.Second
	m := &metricsServer{addr: l.Addr(), done: make(chan struct{}), server: http.Server{Handler: mux,
		ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}}
	go func() {
		defer close(m.done)
		if err := m.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are served no longer", "err", err)
		}
	}()
	return m, nil
}

// Close ends the server and all that it is answering.
func (m *metricsServer) Close() error {
	err := m.server.Close()
	<-m.done
	return err
}
