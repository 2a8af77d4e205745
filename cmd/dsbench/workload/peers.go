package workload

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"exnet/cmd/dsbench/report"
)

// The tests of programs of others that move bytes between processes by shared memory, measured by
// their own tools. They have nothing to do with sockets and are compared with nothing here.
const (
	UCXStream     = "ucx-stream"     // bytes a second in messages of 128 KiB, by ucx_perftest
	UCXPing       = "ucx-ping"       // half of a round trip of 64 bytes in ns, by ucx_perftest
	LibfabricPing = "libfabric-ping" // the same, by fi_pingpong
)

func (p Plan) peerTests() []test {
	ucx, libfabric := []string{"ucx-utils"}, []string{"libfabric-bin"}
	return []test{
		{name: UCXStream, size: peerBlock, unit: report.BytesPerSecond, what: "ucx_perftest tag_bw over shared memory", packages: ucx,
			run: p.ucx("tag_bw", peerBlock, 20_000, func(_, mib float64) float64 { return mib * (1 << 20) })},
		{name: UCXPing, size: pacedSize, unit: report.Nanoseconds, what: "ucx_perftest tag_lat over shared memory, half of a round trip, median", packages: ucx,
			run: p.ucx("tag_lat", pacedSize, 500_000, func(us, _ float64) float64 { return us * 1000 })},
		{name: LibfabricPing, size: pacedSize, unit: report.Nanoseconds, what: "fi_pingpong over the provider shm, half of a round trip, mean", packages: libfabric, run: p.libfabric},
	}
}

const peerBlock = 128 << 10

// ucx is a run of ucx_perftest, of whose last line value makes ours: the median latency in µs
// and the bandwidth in MiB/s.
func (p Plan) ucx(what string, size, count int, value func(us, mib float64) float64) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		a.serverCPUs, a.clientCPUs = p.secondCPU(), p.firstCPU()
		port := freePort()
		tool := []string{"env", "UCX_TLS=posix,self", "UCX_WARN_UNUSED_ENV_VARS=n", "ucx_perftest", "-p", strconv.Itoa(port)}
		if _, err := a.serve(ctx, port, tool...); err != nil {
			return o, err
		}
		text, err := a.run(ctx, append(tool, a.host, "-t", what, "-s", strconv.Itoa(size), "-n", strconv.Itoa(count), "-w", strconv.Itoa(count/10), "-f")...)
		if err != nil {
			return o, err
		}
		// The last line: "  500000   0.093   0.095   0.095   640.1   640.1   10486401   10486401", which are the
		// messages, the time of one (median, mean now, mean of all), bandwidth and rate (now, of all).
		us, err := number(text, `(?m)^\s+\d+\s+([\d.]+)\s`)
		if err != nil {
			return o, err
		}
		mib, err := number(text, `(?m)^\s+\d+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s`)
		o.value = value(us, mib)
		return o, err
	}
}

// libfabric is a run of fi_pingpong.
func (p Plan) libfabric(ctx context.Context, a *arena, _ int) (o outcome, err error) {
	a.serverCPUs, a.clientCPUs = p.secondCPU(), p.firstCPU()
	port := freePort()
	// What Debian links when it installs the package of a provider that is not used here.
	const psm = "libpsm_infinipath.so.1"
	if err := os.Symlink(a.root.Path("/usr/lib/libpsm1/"+psm+".16"), filepath.Join(a.dir, psm)); err != nil {
		return o, err
	}
	tool := []string{"env", "LD_LIBRARY_PATH=" + a.dir, "fi_pingpong", "-p", "shm", "-e", "rdm", "-I", "500000", "-S", strconv.Itoa(pacedSize)}
	if _, err := a.serve(ctx, port, append(tool, "-B", strconv.Itoa(port))...); err != nil {
		return o, err
	}
	text, err := a.run(ctx, append(tool, "-P", strconv.Itoa(port), a.host)...)
	if err != nil {
		return o, err
	}
	// "bytes  #sent  #ack  total  time  MB/sec  usec/xfer  Mxfers/sec", and a line of them
	us, err := number(text, `(?m)^64\s+\S+\s+\S+\s+\S+\s+\S+\s+[\d.]+\s+([\d.]+)`)
	o.value = us * 1000
	return o, err
}
