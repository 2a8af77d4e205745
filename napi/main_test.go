package napi

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A check takes 20 µs, so many can be had; -rapid.checks still has the last word.
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
