package path

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/exn/netns"
)

// RelayCommand is the hidden command of this program that calls ServeRelay.
const RelayCommand = "relay"

// wholeMTU is the largest MTU of a TUN.
const wholeMTU = 65535

// Relay joins the two ends by TUNs and a process that copies between them.
func Relay(mtu int) (*Path, error) {
	p, err := newPath("relay", 2)
	if err != nil {
		return nil, err
	}
	offload := unix.TUN_F_CSUM
	if mtu < wholeMTU {
		offload |= unix.TUN_F_TSO4 | unix.TUN_F_TSO6
	}
	var tuns []*os.File
	for i := range p.ns {
		var tun *os.File
		err = p.ns[i].Do(func() (err error) { tun, err = openTUN(link(i), offload); return err })
		if err == nil {
			defer tun.Close() // the relay has its own
			tuns = append(tuns, tun)
			err = netns.Configure(p.end(i, mtu))
		}
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("path %s: %w", p.Name, err)
		}
	}
	cmd := exec.Command("/proc/self/exe", RelayCommand)
	cmd.ExtraFiles = tuns
	// The threads never come back to Go's scheduler: it need not ask them to.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=4")
	if err := p.start(0, cmd); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// openTUN makes a TUN in the calling thread's namespace. It goes when the last
// descriptor of it is closed.
func openTUN(name string, offload int) (*os.File, error) {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w; load the module tun, or give the container the device", device, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offload)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make the TUN %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ServeRelay is the whole life of the relay process: it copies packets between
// the two TUNs it was started with until it is killed.
func ServeRelay() error {
	const first, second = 3, 4
	for _, fd := range []int{first, second} {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || !strings.HasPrefix(target, "/dev/net/tun") {
			return errors.New("path: a relay is started by dsbench itself, not by hand")
		}
	}
	debug.SetGCPercent(-1) // see pump: nothing is allocated from here on
	failed := make(chan error)
	go func() { failed <- pump(first, second) }()
	go func() { failed <- pump(second, first) }()
	return <-failed
}

// pump copies packets from one TUN to another on a thread of its own.
//
// It uses RawSyscall although read blocks: Go's scheduler is told nothing and
// loses a processor for as long as it does, which is as it should be here,
// where two more are left and the garbage collector, which would have to wait
// for these threads, is off.
func pump(in, out int) error {
	runtime.LockOSThread()
	buf := make([]byte, 70_000)
	for {
		n, err := call(unix.SYS_READ, in, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("path: the relay reads a TUN: %w", err)
		}
		// A TUN that is not up yet, or that refuses a packet, loses it.
		_, err = call(unix.SYS_WRITE, out, buf[:n])
		if err != nil && !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("path: the relay writes a TUN: %w", err)
		}
	}
}
