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
	if s := in.Status(); s.State != status.TCP || s.Reason != reasonPolicy {
		t.Errorf("the rule is for it, and it is %v, %v", s.State, s.Reason)
	}
	// It takes some looks and some time until an end says that nobody has shown up.
	deadline := time.Now().Add(time.Minute)
	for out.Status().Reason == 0 && time.Now().Before(deadline) {
		write(t, out, "x")
		read(t, in, "x")
	}
	if s := out.Status(); s.Reason != reasonNoPeer {
		t.Errorf("its peer has the reason %v", s.Reason)
	}
}
