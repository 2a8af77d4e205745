package programs

import (
	"testing"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
