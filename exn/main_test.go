package exn

import (
	"testing"
	"time"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// patience is how long a test waits for what should come at once. It ends a hang; it does not limit
// speed.
const patience = 30 * time.Second
