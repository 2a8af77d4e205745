package napi

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A check takes only 20 µs, so many are cheap; -rapid.checks still overrides this.
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
