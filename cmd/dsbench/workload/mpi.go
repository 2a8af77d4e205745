package workload

import (
	"context"
	_ "embed"
	"strconv"
	"strings"

	"exnet/cmd/dsbench/report"
)

//go:embed mpi.py
var mpiProgram string

var openMPI = []string{"openmpi-bin", "python3-mpi4py"}

// mpiOver are tests over sizes of messages, as those of the OSU benchmarks.
func (p Plan) mpiOver(name, what string, unit report.Unit, sizes ...int) (all []test) {
	for _, size := range sizes {
		all = append(all, test{name: name, size: size, unit: unit, what: "Open MPI, " + what + ", from Python",
			packages: openMPI, upgrades: true, run: p.mpi(strings.TrimPrefix(name, "mpi-"), size)})
	}
	return all
}

// mpi is two ranks of Open MPI over its TCP transport. Only they get the library, not mpirun itself.
func (p Plan) mpi(what string, size int) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		file, err := a.write("mpi.py", []byte(mpiProgram))
		if err != nil {
			return o, err
		}
		mpirun := []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2",
			"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"}
		rank := append(a.environment(a.client), "python3", file, what, strconv.Itoa(size), strconv.FormatFloat(p.seconds(), 'f', -1, 64))
		a.client = false
		text, err := a.run(ctx, append(mpirun, rank...)...)
		if err != nil {
			return o, err
		}
		o.value, err = number(text, `([\d.e+]+)`)
		return o, err
	}
}
