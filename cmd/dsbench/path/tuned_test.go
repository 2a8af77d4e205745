package path

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// A tuning is of the ends of its path, not of the machine.
func TestTune(t *testing.T) {
	const file = "/proc/sys/net/ipv4/tcp_rmem"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Veth(1500)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("needs root, for network namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const buffers = "4096\t4194304\t33554432"
	if err := p.Tune(Tuning{Sysctl: map[string]string{"tcp_rmem": buffers}, Segments: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range p.Ends {
		err := p.ns[i].Do(func() error {
			text, err := os.ReadFile(file)
			if err == nil && strings.TrimSpace(string(text)) != buffers {
				t.Errorf("end %d has %q", i, text)
			}
			l, err := netlink.LinkByName(link(i))
			if err == nil && l.Attrs().GSOMaxSegs != 1 {
				t.Errorf("end %d takes %d segments", i, l.Attrs().GSOMaxSegs)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if after, _ := os.ReadFile(file); string(after) != string(before) {
		t.Errorf("the machine has %q instead of %q", after, before)
	}
	if err := p.Tune(Tuning{Sysctl: map[string]string{"tcp_no_such": "1"}}); err == nil || !strings.Contains(err.Error(), "tcp_no_such") {
		t.Errorf("%v", err)
	}
}
