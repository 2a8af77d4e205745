package exn

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/shm"
	"exnet/mtu"
	"exnet/napi"
)

// A steadyDevice yields the same packet as often as it is told to, and allocates nothing.
type steadyDevice struct {
	fakeDevice
	packet   []byte
	vnet     exteth.VNet
	left     int
	received int
}

func (d *steadyDevice) Read(b []byte) (int, exteth.VNet, error) {
	if d.left == 0 {
		return 0, exteth.VNet{}, device.ErrEmpty
	}
	d.left--
	return copy(b[device.Headroom:], d.packet), d.vnet, nil
}

func (d *steadyDevice) Write([]byte, exteth.VNet) error {
	d.received++
	return nil
}

// handDriven opens two interfaces on shared memory. The test itself turns their loops.
func handDriven(t testing.TB) (i [2]*Interface, d [2]*steadyDevice) {
	t.Helper()
	dir := t.TempDir()
	for k := range i {
		node, err := shm.Attach(shm.Config{Dir: dir + "/fabric", Node: fabric.NodeID(k + 1)})
		if err != nil {
			t.Fatal(err)
		}
		d[k] = &steadyDevice{fakeDevice: fakeDevice{mtu: int(mtu.MaxTUN), caps: exteth.CapAll, adopted: true}}
		// Neighbours of the other family make no difference to the fast path.
		if i[k], err = Open(Config{Node: node, Addresses: []netip.Prefix{netip.PrefixFrom(addr4(k), 24)}}, d[k]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = i[k].Close()
			_ = node.Close()
		})
		i[k].cancel = func(err error) { t.Error(err) }
		i[k].engine.SetBusyPoll(napi.Forever)
		i[k].claimAll(i[k].clock())
	}
	for k := range i { // let them resolve each other
		d[k].packet, d[k].left = udp(addr4(k), addr4(1-k), 10, 0), 1
	}
	for d[0].received == 0 || d[1].received == 0 || i[0].cache.Len() == 0 || i[1].cache.Len() == 0 {
		turn(i[0])
		turn(i[1])
		time.Sleep(10 * time.Microsecond) // netstack's timers
	}
	return i, d
}

// deliver moves n packets from the first to the second. It sends no more than there is room for:
// packets that wait for room are dropped if this process loses its CPU for long. It resends packets
// that a time-out lost, or whose resolution was given up.
func deliver(i [2]*Interface, d [2]*steadyDevice, n int) {
	const idleTurns, again = 1000, time.Second
	d[0].left = n
	d[0].notify()
	end, turns := d[1].received+n, 0
	var idle, sent time.Time // when the last packet arrived, and when packets were last sent
	for before := d[1].received; d[1].received < end; {
		turn(i[0])
		turn(i[1])
		if d[1].received != before {
			before, turns = d[1].received, 0
			continue
		}
		if turns++; turns < idleTurns {
			continue
		}
		time.Sleep(10 * time.Microsecond) // netstack's timers
		now := time.Now()
		if turns == idleTurns {
			idle, sent = now, now
		}
		if now.Sub(idle) > patience {
			panic(fmt.Sprintf("%d packets are missing: %+v\n%+v", end-d[1].received, i[0].Snapshot(), i[1].Snapshot()))
		}
		if now.Sub(sent) > again && d[0].left == 0 {
			sent = now
			d[0].left = end - d[1].received
			d[0].notify()
		}
	}
}

// turn does what the loop does, but never sleeps.
func turn(i *Interface) {
	if i.engine.Turn().Do == napi.Sleep {
		_ = (*timedSleeper)(i).Sleep(0)
	}
}

// burst is how many packets of four messages VELO has room for.
const burst = 12

// The fast path allocates nothing, neither eager nor rendezvous.
func TestAllocFastPath(t *testing.T) {
	i, d := handDriven(t)
	for _, n := range []int{64, 400, 1472, 60000} {
		d[0].packet = udp(addr4(0), addr4(1), n, 1)
		for range 50 {
			deliver(i, d, burst)
		}
		if per := testing.AllocsPerRun(200, func() { deliver(i, d, burst) }); per > 0 {
			t.Errorf("%d bytes: %v allocations for %d packets", n, per, burst)
		}
	}
	d[0].vnet = udpSuper
	if per := testing.AllocsPerRun(200, func() { deliver(i, d, burst) }); per > 0 {
		t.Errorf("super-packets: %v allocations for %d", per, burst)
	}
}

func BenchmarkDeliver(b *testing.B) {
	for _, n := range []int{64, 1472, 60000} {
		b.Run(map[int]string{64: "eager", 1472: "rendezvous", 60000: "long"}[n], func(b *testing.B) {
			i, d := handDriven(b)
			d[0].packet = udp(addr4(0), addr4(1), n, 1)
			deliver(i, d, burst)
			b.ReportAllocs()
			for b.Loop() {
				deliver(i, d, burst)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/packet")
		})
	}
}

// A poll of the device reports when it has read the last packet, which saves the loop a read.
func TestDeviceIsDrained(t *testing.T) {
	i, d := handDriven(t)
	d[0].packet = make([]byte, 40) // which is dropped
	for _, c := range []struct {
		packets, budget int
		drained         bool
	}{{3, 64, true}, {0, 64, true}, {64, 64, false}} {
		d[0].left = c.packets
		if r := i[0].pollDevice(c.budget); r.Work != c.packets || r.Drained != c.drained {
			t.Errorf("%d packets: %+v, want drained %v", c.packets, r, c.drained)
		}
	}
}

// A poll for messages counts the bytes of UDP super-packets that it fetched because of them.
func TestBytesOfBursts(t *testing.T) {
	i, d := handDriven(t)
	d[0].packet, d[0].vnet = udp(addr4(0), addr4(1), 30000, 0), udpSuper
	deliver(i, d, 10)
	for range 20 {
		turn(i[0])
		turn(i[1])
	}
	d[0].left = 2
	i[0].pollDevice(2)
	if r := i[1].pollVELO(3); r.Work != 2 || r.Bytes < 60000 {
		t.Errorf("%+v", r)
	}
}

// Before it sleeps, the loop interrupts the senders whose frames it fetched, even after a poll that
// used all of its budget.
func TestSleepTells(t *testing.T) {
	i, d := handDriven(t)
	d[0].packet = udp(addr4(0), addr4(1), 30000, 0)
	deliver(i, d, 10)
	for range 20 {
		turn(i[0])
		turn(i[1])
	}
	d[0].left = 2
	if r := i[0].pollDevice(2); r.Work != 2 {
		t.Fatalf("%+v", r)
	}
	irq := i[0].fabric[0].irq
	irq.Wait(0) // forget earlier interrupts
	if !irq.Arm() {
		t.Fatal("something to do before anything was fetched")
	}
	told := func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(irq.FD()), Events: unix.POLLIN}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	if r := i[1].pollVELO(2); r.Work != 2 || told() {
		t.Fatalf("%+v, or told already", r)
	}
	if err := (*timedSleeper)(i[1]).Sleep(0); err != nil || !told() {
		t.Errorf("not told: %v", err)
	}
}
