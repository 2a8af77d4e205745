package apps_test

import (
	"strconv"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Open MPI over its TCP transport, whose ranks connect to each other in both
// directions at once. The server is rank 0, the client rank 1.
func TestOpenMPI(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: Open MPI is one more package, and makes few connections")
	}
	root := debroot.Need(t, "openmpi-bin", "python3-mpi4py")
	rounds := "200"
	if ds.Long() {
		rounds = "20000"
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		return s.mpirun(1, "mpi.py", rounds)
	}})
}

// Four ranks, two at each end: each pair has connections of its own.
func TestOpenMPIFourRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all: Open MPI is one more package, and makes few connections")
	}
	root := debroot.Need(t, "openmpi-bin", "python3-mpi4py")
	compare(t, scenario{root: root, lanes: true, among: true, play: func(s *stage) string {
		return s.mpirun(2, "ranks.py", "18")
	}})
}

// mpirun runs a program of testdata with as many ranks at each end.
func (s *stage) mpirun(ranks int, program, rounds string) string {
	s.Helper()
	rank := func(env []string) []string {
		return append(append([]string{"-np", strconv.Itoa(ranks), "env"}, env...), "python3", testdata(s, program), rounds)
	}
	args := []string{"--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
		"--mca", "oob_tcp_if_include", "lo"}
	args = append(append(append(args, rank(s.server)...), ":"), rank(s.client)...)
	plain := *s
	plain.client = nil // mpirun itself
	return string(plain.run(nil, "mpirun.openmpi", args...))
}
