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

	"exnet/exn"
	"exnet/exteth"
	"exnet/napi"
)

// Metrics in the text format of Prometheus, version 0.0.4: one sample per line, all
// samples of a name together. It needs no library: every name and label is our own,
// so that nothing has to be escaped but names of interfaces and programs.

// writeMetrics writes all that a daemon knows as metrics: of its interface, or of each
// port of its router.
func writeMetrics(w io.Writer, all ...*state) {
	m := stateWriter{metricWriter{w: w}, all}
	gauge := func(name, help string, of func(*state) any) {
		m.each(name, "gauge", help, func(s *state, sample sampler) { sample("", of(s)) })
	}
	gauge("exn_carrier", "Whether the interface has a carrier.", func(s *state) any { return number(s.Interface.Carrier) })
	gauge("exn_uptime_seconds", "How long the daemon has run.", func(s *state) any { return s.Interface.Uptime.Seconds() })
	gauge("exn_mtu_bytes", "The MTU of the interface.", func(s *state) any { return s.Link.MTU })
	gauge("exn_peers", "Other nodes attached to the fabric.", func(s *state) any { return len(s.Interface.Peers) })
	m.each("exn_neighbours", "gauge", "Entries of the neighbour table by state.", func(s *state, sample sampler) {
		states := make(map[string]int)
		for _, n := range s.Interface.Neighbours {
			states[strings.ToLower(n.State)]++
		}
		inOrder(states, "state", sample)
	})
	gauge("exn_groups", "Multicast groups joined.", func(s *state) any { return len(s.Interface.Groups) })

	for _, c := range []struct {
		name string
		of   func(f *exteth.Interface) uint64
	}{
		{"receive_packets", func(f *exteth.Interface) uint64 { return f.RXPackets }},
		{"receive_bytes", func(f *exteth.Interface) uint64 { return f.RXBytes }},
		{"receive_errors", func(f *exteth.Interface) uint64 { return f.RXErrors }},
		{"receive_dropped", func(f *exteth.Interface) uint64 { return f.RXDropped }},
		{"receive_overruns", func(f *exteth.Interface) uint64 { return f.RXOverruns }},
		{"receive_frame", func(f *exteth.Interface) uint64 { return f.RXFrame }},
		{"transmit_packets", func(f *exteth.Interface) uint64 { return f.TXPackets }},
		{"transmit_bytes", func(f *exteth.Interface) uint64 { return f.TXBytes }},
		{"transmit_errors", func(f *exteth.Interface) uint64 { return f.TXErrors }},
		{"transmit_dropped", func(f *exteth.Interface) uint64 { return f.TXDropped }},
		{"transmit_overruns", func(f *exteth.Interface) uint64 { return f.TXOverruns }},
		{"transmit_carrier", func(f *exteth.Interface) uint64 { return f.TXCarrier }},
	} {
		m.each("exn_"+c.name+"_total", "counter", "As the interface's statistics say; see exn-tun show interface.",
			func(s *state, sample sampler) { sample("", c.of(&s.Interface.Statistics)) })
	}
	m.each("exn_counter_total", "counter", "All counters of the interface, lost packets by reason; see exn-tun show counters.",
		func(s *state, sample sampler) { inOrder(s.Interface.Counters, "counter", sample) })
	// Some registers are counters, some are not; Prometheus calls that untyped.
	m.each("exn_register", "untyped", "The register file of the node on the fabric.",
		func(s *state, sample sampler) { inOrder(s.Registers, "register", sample) })
	m.perSource()
	m.perPeer()
}

func (m stateWriter) perSource() {
	for _, c := range []struct {
		name string
		of   func(*napi.SourceStats) uint64
	}{
		{"polls", func(s *napi.SourceStats) uint64 { return s.Polls }},
		{"polls_exhausted", func(s *napi.SourceStats) uint64 { return s.Exhausted }},
		{"work", func(s *napi.SourceStats) uint64 { return s.Work }},
		{"interrupts", func(s *napi.SourceStats) uint64 { return s.Interrupts }},
		{"throttled", func(s *napi.SourceStats) uint64 { return s.Throttled }},
	} {
		m.each("exn_napi_"+c.name+"_total", "counter", "Of each source; see exn-tun show napi.", func(s *state, sample sampler) {
			for _, source := range s.Interface.NAPI.Sources {
				sample(fmt.Sprintf(",source=%q", source.Name), c.of(&source.Stats))
			}
		})
	}
}

func (m stateWriter) perPeer() {
	for _, c := range []struct {
		name, help string
		of         func(*exn.PeerState) int
	}{
		{"waiting", "Frames that wait for a peer.", func(p *exn.PeerState) int { return p.Waiting }},
		{"outstanding", "Frames advertised to a peer and not fetched yet.", func(p *exn.PeerState) int { return p.Out }},
	} {
		m.each("exn_peer_"+c.name, "gauge", c.help, func(s *state, sample sampler) {
			for _, p := range s.Interface.Peers {
				sample(fmt.Sprintf(",peer=\"%d\"", p.Node), c.of(&p))
			}
		})
	}
}

// A stateWriter writes families of samples, in which each state has its own.
type stateWriter struct {
	metricWriter
	all []*state
}

type sampler func(labels string, v any)

func (m stateWriter) each(name, kind, help string, samples func(*state, sampler)) {
	m.family(name, kind, help)
	for _, s := range m.all {
		m.labels = fmt.Sprintf("node=\"%d\",interface=%q", s.Interface.Node, s.Link.Name)
		samples(s, func(labels string, v any) { m.sample(name, labels, v) })
	}
}

// inOrder writes one sample for each key, which is the value of a label.
func inOrder[V any](values map[string]V, label string, sample sampler) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		sample(fmt.Sprintf(",%s=%q", label, key), values[key])
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

// checkListen says what is wrong with an address to listen at, whatever this host is like.
func checkListen(flag, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err == nil && strings.ContainsAny(host, "/ ") {
		err = errors.New("no host")
	}
	if err != nil {
		return fmt.Errorf("--%s %q is no address to listen at, such as 127.0.0.1:9750", flag, address)
	}
	return nil
}

// serveMetrics listens in the namespace of this process, not the interface's.
func serveMetrics(addr string, write func(io.Writer) error, log *slog.Logger) (*metricsServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // the rest repeats the address
		}
		return nil, fmt.Errorf("cannot serve metrics at %s: %w; choose a free port of an address of this host, such as 127.0.0.1:9750", addr, err)
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
