package directsockets

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"exnet/directsockets/policy"
	"exnet/directsockets/status"
)

// A program reads the rules when it starts, so the test starts one.
func TestPolicy(t *testing.T) {
	const child = "EXNET_TEST_POLICY"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPolicy$")
		cmd.Env = append(os.Environ(), child+"=1", "EXN_DS_SPIN_US=9", "EXN_DS_CALLS=",
			policy.Variable+"=program *.test EXN_DS_CALLS=3 EXN_DS_SPIN_US=5;connection *.test in any 127.0.0.0/8 no;")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		return
	}
	if env.calls != 3 || env.spin.Microseconds() != 9 {
		t.Errorf("%d calls, spin %v: want the rule's 3, and the environment's own 9us", env.calls, env.spin)
	}
	out, in := pipe(t, Options{Fabric: fabric(t)})
	for range 50 {
		write(t, out, "x")
		read(t, in, "x")
	}
	// Its offer has to expire if it was the first to look.
	for deadline := time.Now().Add(time.Minute); out.Status().State != status.TCP && time.Now().Before(deadline); {
		write(t, out, "x")
		read(t, in, "x")
		time.Sleep(time.Millisecond)
	}
	if s := in.Status(); s.State != status.TCP || s.Reason != reasonPolicy {
		t.Errorf("the rule is for it, and it is %v, %v", s.State, s.Reason)
	}
	if s := out.Status(); s.Reason != reasonRefused || s.Why() != "refused by peer: policy" {
		t.Errorf("its peer says %q", s.Why())
	}
}
