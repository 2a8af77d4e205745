package apps_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// A disk over the network: nbdkit has one in memory, to which nbdcopy writes, and which it
// reads, by four connections and many requests at once.
func TestNBD(t *testing.T) {
	root := debroot.Need(t, "nbdkit", "libnbd-bin")
	size := int64(32 << 20)
	if ds.Long() {
		size = 1 << 30
	}
	compare(t, scenario{root: root, lanes: true, play: func(s *stage) string {
		dir := s.fresh("disk")
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		f, err := os.Create(from)
		if err == nil {
			_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
		}
		if err != nil {
			s.Fatal(err)
		}
		f.Close()
		port := freePort()
		s.serve(port, "nbdkit", "-f", "-i", "127.0.0.1", "-p", strconv.Itoa(port), "memory", strconv.FormatInt(size, 10))
		disk := fmt.Sprintf("nbd://127.0.0.1:%d", port)
		s.run(nil, "nbdcopy", "--connections=4", from, disk)
		s.run(nil, "nbdcopy", "--connections=4", disk, to)
		digest := sha256.New()
		if f, err = os.Open(to); err != nil {
			s.Fatal(err)
		}
		defer f.Close()
		if n, err := io.Copy(digest, f); err != nil || n != size {
			s.Errorf("%d of %d bytes came back: %v", n, size, err)
		}
		return fmt.Sprintf("%x", digest.Sum(nil))
	}})
}
