package workload

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/report"
)

// programTests are those of `dsbench apps`. The targets are the project's.
func (p Plan) programTests() []test {
	redis := []string{"redis-server", "redis-tools"}
	nginx := []string{"nginx-light", "wrk", "apache2-utils"}
	get := func(clients int, flags ...string) func(context.Context, *arena, int) (outcome, error) {
		return redisBenchmark("", append([]string{"-c", strconv.Itoa(clients)}, flags...)...)
	}
	rate := report.MessagesPerSec
	pg := []string{"postgresql"}
	maria := []string{"mariadb-server", "mariadb-client", "sysbench"}
	all := []test{
		{name: "redis-get", unit: rate, what: "redis-benchmark GET, 50 clients", target: report.AtLeast(report.Ratio, 15),
			packages: redis, upgrades: true, abroad: true, counted: true, run: get(50)},
		{name: "redis-get-one", unit: rate, what: "redis-benchmark GET, one client", target: report.AtLeast(report.Ratio, 30),
			packages: redis, upgrades: true, abroad: true, counted: true, run: get(1)},
		{name: "redis-pipelined", unit: rate, what: "redis-benchmark GET, 50 clients, 16 requests at a time", target: report.AtLeast(report.Ratio, 1.5),
			packages: redis, upgrades: true, abroad: true, counted: true, run: get(50, "-P", "16")},
		{name: "redis-get-500", unit: rate, what: "redis-benchmark GET, 500 clients", target: report.AtLeast(report.Ratio, 12),
			packages: redis, upgrades: true, counted: true, run: get(500)},
		{name: "redis-three", unit: rate, what: "three busy processes: two redis-benchmarks GET, 50 clients each, their sum", target: report.AtLeast(report.Ratio, 8),
			packages: redis, upgrades: true, counted: true, run: redisBenchmarks(2, "", "-c", "50")},
		{name: "redis-five", unit: rate, what: "five busy processes: four redis-benchmarks GET, 50 clients each, their sum", target: report.AtLeast(report.Ratio, 8),
			packages: redis, upgrades: true, counted: true, run: redisBenchmarks(4, "", "-c", "50")},
		{name: "redis-cpu", unit: report.Nanoseconds, what: "CPU time of server and clients per request, 50 clients", target: report.AtMost(report.Ratio, 0.15),
			packages: redis, upgrades: true, counted: true, run: cpuPerRequest(get(50))},
		{name: "redis-one-cpu", unit: rate, what: "redis-benchmark GET, 50 clients, all on one CPU", target: report.AtLeast(report.Ratio, 5),
			packages: redis, upgrades: true, counted: true, run: redisBenchmark(p.firstCPU(), "-c", "50")},
		{name: "redis-idle", unit: report.PercentOfCPU, what: "CPU time that the library adds to server and client while their upgraded connection has nothing to do, of one CPU",
			target: report.AtMost(report.Value, 0.1), packages: redis, alone: idle},
		{name: "redis-connect", unit: rate, what: "redis-benchmark GET, 50 clients, a connection for each request", target: report.AtLeast(report.Ratio, 0.97),
			packages: redis, abroad: true, counted: true, most: portsOfServer, run: get(50, "-k", "0")},
		{name: "nginx", size: 1 << 10, unit: rate, what: "wrk, 50 connections, two workers, the file held open", target: report.AtLeast(report.Ratio, 4),
			packages: nginx, upgrades: true, abroad: true, run: wrk(1<<10, 50)},
		{name: "nginx", size: 100 << 10, unit: rate, what: "wrk, 50 connections, two workers, the file held open", target: report.AtLeast(report.Ratio, 4),
			packages: nginx, upgrades: true, abroad: true, run: wrk(100<<10, 50)},
		{name: "nginx-one", size: 1 << 10, unit: rate, what: "wrk, one connection", target: report.AtLeast(report.Ratio, 20),
			packages: nginx, upgrades: true, run: wrk(1<<10, 1)},
		{name: "nginx-connect", size: 1 << 10, unit: rate, what: "ab, 8 at once, a connection for each request", target: report.AtLeast(report.Ratio, 0.97),
			packages: nginx, abroad: true, counted: true, most: portsOfServer, run: ab(1 << 10)},
		{name: "memcached", unit: rate, what: "memcaslap, 50 connections, one thread on each side", target: report.AtLeast(report.Ratio, 5),
			packages: []string{"memcached", "libmemcached-tools"}, upgrades: true, abroad: true, counted: true, stores: true, run: memcached},
		{name: "pgbench", unit: rate, what: "PostgreSQL, pgbench -S, 8 clients", target: report.AtLeast(report.Ratio, 1.3),
			packages: pg, upgrades: true, abroad: true, counted: true, longer: 5, prepare: cluster(false), run: pgbench(8)},
		{name: "pgbench-one", unit: rate, what: "PostgreSQL, pgbench -S, one client", target: report.AtLeast(report.Ratio, 1.3),
			packages: pg, upgrades: true, counted: true, longer: 5, prepare: cluster(false), run: pgbench(1)},
		{name: "mariadb", unit: rate, what: "MariaDB, sysbench's point select, 8 threads", target: report.AtLeast(report.Ratio, 1.3),
			packages: maria, upgrades: true, counted: true, longer: 3, prepare: sysbenchTable, run: pointSelect(8)},
		{name: "mariadb-one", unit: rate, what: "MariaDB, sysbench's point select, one thread", target: report.AtLeast(report.Ratio, 1.3),
			packages: maria, upgrades: true, counted: true, longer: 3, prepare: sysbenchTable, run: pointSelect(1)},
		{name: "postgres-copy", unit: report.BytesPerSecond, what: "PostgreSQL, COPY of a GB in rows of a KB out to psql", target: report.AtLeast(report.Ratio, 1.3),
			packages: pg, upgrades: true, abroad: true, prepare: cluster(true), run: copyOut},
	}
	all = slices.Concat(all, p.mpiOver("mpi-latency", "half of a round trip between two ranks", report.Nanoseconds, 8, 1<<10, 64<<10),
		p.mpiOver("mpi-bandwidth", "16 messages at a time from one rank to another", report.BytesPerSecond, 64, 1<<10, 8<<10, 64<<10, 1<<20, 4<<20),
		p.mpiOver("mpi-rate", "64 messages at a time from one rank to another", rate, 8, 32, 1<<10, 8<<10))
	return append(all, p.pacedTests()...)
}

// redis starts a server.
func (a *arena) redis(ctx context.Context) (port int, err error) {
	port = freePort()
	_, err = a.serve(ctx, port, "redis-server", "--port", strconv.Itoa(port), "--bind", a.host, "--protected-mode", "no", "--save", "", "--dir", a.dir)
	return port, err
}

func redisBenchmark(cpus string, flags ...string) func(context.Context, *arena, int) (outcome, error) {
	return redisBenchmarks(1, cpus, flags...)
}

// redisBenchmarks is so many clients at once, and the sum of what they did.
func redisBenchmarks(clients int, cpus string, flags ...string) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		a.serverCPUs, a.clientCPUs = cpus, cpus
		port, err := a.redis(ctx)
		if err != nil {
			return o, err
		}
		each := max(1, n/clients)
		said, err := a.runAll(ctx, clients, append([]string{"redis-benchmark", "-h", a.host, "-p", strconv.Itoa(port), "--csv", "-t", "get", "-n", strconv.Itoa(each)}, flags...)...)
		if err != nil {
			return o, err
		}
		for _, text := range said {
			rate, err := redisRate(text, each)
			if err != nil {
				return o, err
			}
			o.rate += rate
		}
		o.value = o.rate
		return o, nil
	}
}

// redisRate is what redis-benchmark says of n requests. It counts milliseconds: of a run that took less than
// one it says "inf".
func redisRate(text []byte, n int) (float64, error) {
	rate, err := number(text, `"GET","([\d.]+|inf)"`)
	return min(rate, float64(n)*1000), err
}

// cpuPerRequest makes the CPU time per request of a test the value. It is counted
// from the start of the programs to their end; runs are long.
func cpuPerRequest(run func(context.Context, *arena, int) (outcome, error)) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (outcome, error) {
		o, err := run(ctx, a, n)
		a.close()
		o.value = float64(a.cpu) / float64(n)
		return o, err
	}
}

// idle upgrades a connection, leaves it alone, and counts CPU time meanwhile, beside
// a server and a client without the library that do nothing likewise.
func idle(ctx context.Context, b *bench, _ *test, row *report.Row) error {
	quiet := 5 * time.Second
	if b.Quick {
		quiet = time.Second
	}
	var pids [2][]int // without the library and with it
	for i := range pids {
		pair, end, err := b.idlePair(ctx, i == 1)
		if err != nil {
			return err
		}
		defer end()
		pids[i] = pair
	}
	time.Sleep(200 * time.Millisecond) // the last answers
	var sum [2]float64
	for range b.Runs {
		var used [2]float64
		var before, after [2]time.Duration
		var err error
		begin := time.Now()
		for i := range pids {
			if before[i], err = scheduled(pids[i]); err != nil {
				return err
			}
		}
		select {
		case <-time.After(quiet / time.Duration(b.Runs)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for i := range pids {
			if after[i], err = scheduled(pids[i]); err != nil {
				return err
			}
			used[i] = 100 * float64(after[i]-before[i]) / float64(time.Since(begin))
			sum[i] += used[i]
		}
		row.Runs = append(row.Runs, max(0, used[1]-used[0]))
	}
	row.Note = fmt.Sprintf("%.3f %% with the library and %.3f %% without: redis-server does its own housekeeping ten times a second",
		sum[1]/float64(b.Runs), sum[0]/float64(b.Runs))
	return nil
}

// idlePair starts a server and a client that have talked on one connection and have
// nothing more to say, on a lane if they have the library.
func (b *bench) idlePair(ctx context.Context, preloaded bool) (pids []int, end func(), err error) {
	a, err := b.newArena(preloaded)
	if err != nil {
		return nil, nil, err
	}
	var stop []func() // in this order
	end = func() {
		for _, f := range append(stop, a.close) {
			f()
		}
	}
	fail := func(err error) ([]int, func(), error) {
		end()
		return nil, nil, err
	}
	port, err := a.redis(ctx)
	if err != nil {
		return fail(err)
	}
	// It reads its commands from a pipe that says nothing more after a while.
	cmd := a.command(ctx, clientEnd, []string{"redis-cli", "-p", strconv.Itoa(port)})
	commands, err := cmd.StdinPipe()
	if err != nil {
		return fail(err)
	}
	if err := cmd.Start(); err != nil {
		return fail(fmt.Errorf("start redis-cli: %w", err))
	}
	stop = append(stop, func() {
		commands.Close()
		cmd.Wait() // it ends with its input
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if _, err := commands.Write([]byte(strings.Repeat("ping\n", 20))); err != nil {
			return fail(fmt.Errorf("redis-cli ended: %w", err))
		}
		if !preloaded || a.shows(test{}.sign) {
			return []int{a.running[0].cmd.Process.Pid, cmd.Process.Pid}, end, nil
		}
		if time.Now().After(deadline) {
			return fail(fmt.Errorf("the connection does not upgrade"))
		}
	}
}

// scheduled is how long the threads of processes have been on a CPU.
func scheduled(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is good
		for _, path := range stats {
			text, err := os.ReadFile(path)
			if err != nil {
				return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
			}
			var ns int64
			if _, err := fmt.Sscan(string(text), &ns); err != nil {
				return 0, fmt.Errorf("CPU time in %s: %w", path, err)
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}

const nginxConfiguration = `daemon off;
worker_processes 2;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	sendfile on;
	open_file_cache max=16;
	keepalive_requests 100000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[3]s:%[2]d backlog=4096;
		root %[1]s;
	}
}
`

// nginx starts a server with a file of a size.
func (a *arena) nginx(ctx context.Context, size int) (url string, err error) {
	port := freePort()
	configuration := fmt.Sprintf(nginxConfiguration, a.dir, port, a.host)
	if os.Geteuid() == 0 {
		configuration = "user root;\n" + configuration // its workers must reach the directory
	}
	file, err := a.write("nginx.conf", []byte(configuration))
	if err != nil {
		return "", err
	}
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i*7 + i>>12*13)
	}
	if _, err := a.write("file", content); err != nil {
		return "", err
	}
	_, err = a.serve(ctx, port, "nginx", "-p", a.dir, "-c", file, "-e", "stderr")
	return fmt.Sprintf("http://%s:%d/file", a.host, port), err
}

func wrk(size, connections int) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		url, err := a.nginx(ctx, size)
		if err != nil {
			return o, err
		}
		text, err := a.run(ctx, "wrk", "-t", "1", "-c", strconv.Itoa(connections), "-d", "1", url)
		if err != nil {
			return o, err
		}
		if strings.Contains(string(text), "errors") || strings.Contains(string(text), "Non-2xx") {
			return o, fmt.Errorf("wrk had errors: %s", text)
		}
		o.value, err = number(text, `Requests/sec:\s+([\d.]+)`)
		return o, err
	}
}

func ab(size int) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, n int) (o outcome, err error) {
		url, err := a.nginx(ctx, size)
		if err != nil {
			return o, err
		}
		text, err := a.run(ctx, "ab", "-q", "-c", "8", "-n", strconv.Itoa(n), url)
		if err != nil {
			return o, err
		}
		if failed, err := number(text, `Failed requests:\s+(\d+)`); err != nil || failed > 0 {
			return o, fmt.Errorf("ab had failed requests: %s", text)
		}
		o.rate, err = number(text, `Requests per second:\s+([\d.]+)`)
		o.value = o.rate
		return o, err
	}
}

func memcached(ctx context.Context, a *arena, n int) (o outcome, err error) {
	port := freePort()
	command := []string{"memcached", "-l", a.host, "-p", strconv.Itoa(port), "-U", "0", "-t", "1", "-m", "256"}
	if os.Geteuid() == 0 {
		command = append(command, "-u", "root")
	}
	if _, err := a.serve(ctx, port, command...); err != nil {
		return o, err
	}
	text, err := a.run(ctx, "memcaslap", "-s", a.host+":"+strconv.Itoa(port), "-c", "50", "-T", "1", "-x", strconv.Itoa(n))
	if err != nil {
		return o, err
	}
	o.rate, err = number(text, `TPS: ([\d.]+)`)
	o.value = o.rate
	return o, err
}
