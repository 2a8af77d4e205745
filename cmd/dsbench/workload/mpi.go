package workload

import (
	"context"
	_ "embed"
	"strconv"
)

//go:embed mpi.py
var mpiProgram string

// mpi is two ranks of Open MPI over its TCP transport. Only they get the library, not mpirun itself.
func (p Plan) mpi(what string) func(context.Context, *arena, int) (outcome, error) {
	return func(ctx context.Context, a *arena, _ int) (o outcome, err error) {
		file, err := a.write("mpi.py", []byte(mpiProgram))
		if err != nil {
			return o, err
		}
		mpirun := []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "2",
			"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"}
		rank := append(a.environment(a.client), "python3", file, what, strconv.FormatFloat(p.seconds(), 'f', -1, 64))
		a.client = false
		text, err := a.run(ctx, append(mpirun, rank...)...)
		if err != nil {
			return o, err
		}
		o.value, err = number(text, `([\d.e+]+)`)
		return o, err
	}
}
