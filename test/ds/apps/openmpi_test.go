package apps_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// Open MPI over its TCP transport, whose ranks connect to each other in both
// directions at once. The server is rank 0, the client rank 1.
func TestOpenMPI(t *testing.T) {
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
	root := debroot.Need(t, "openmpi-bin", "python3-mpi4py")
	compare(t, scenario{root: root, lanes: true, among: true, play: func(s *stage) string {
		return s.mpirun(2, "ranks.py", "18")
	}})
}

// mpirun runs a program of testdata with as many ranks at each end. Each rank finds out
// itself to which end it belongs: to say so is a program of its own for each end, with
// which mpirun 5.0.7 crashes. It is not told to keep to the loopback for itself, as that one
// then does not find it, and on one host nobody comes to where mpirun listens.
func (s *stage) mpirun(ranks int, program, rounds string) string {
	s.Helper()
	begin := fmt.Sprintf(`if [ "$OMPI_COMM_WORLD_RANK" -lt %d ]; then exec env %s "$@"; fi; exec env %s "$@"`, ranks, strings.Join(s.server, " "), strings.Join(s.client, " "))
	args := []string{"--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo",
		"-np", strconv.Itoa(2 * ranks), "sh", "-c", begin, "sh", "python3", testdata(s, program), rounds}
	plain := *s
	plain.client = nil // mpirun itself
	return string(plain.run(nil, "mpirun.openmpi", args...))
}
