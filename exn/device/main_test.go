package device

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/test/leak"
)

// holderNamespace tells the test binary to open an interface in that namespace, report that, and
// wait to be killed.
const holderNamespace = "EXNET_TEST_HOLDER"

func TestMain(m *testing.M) {
	if ns := os.Getenv(holderNamespace); ns != "" {
		if _, err := Open(crashing(ns)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		unix.Pause()
	}
	leak.Main(m)
}
