package measure_test

import (
	"testing"

	"exnet/cmd/dsbench/measure"
)

func TestCoreToCore(t *testing.T) {
	cpus, err := measure.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if ns := measure.CoreToCore(cpus[0], cpus[0]); ns != 0 {
		t.Errorf("a CPU is %v ns from itself", ns)
	}
	if ns := measure.CoreToCore(cpus[0], -2); ns != 0 {
		t.Errorf("a CPU that is not there is %v ns away", ns)
	}
	if len(cpus) < 2 {
		t.Skip("one CPU: nothing is apart")
	}
	for range 50 { // on a busy machine both may never run at once
		if measure.CoreToCore(cpus[0], cpus[1]) > 0 {
			return
		}
	}
	t.Error("two CPUs are never apart")
}
