package path

import (
	"bufio"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"exnet/exn/netns"
	"exnet/internal/debroot"
)

// WireGuard is what its protocol takes from an MTU of 1500, and its usual port.
const (
	wireGuardMTU  = 1420
	wireGuardPort = 51820
)

// WireGuard joins the ends by wireguard-go, an encrypting daemon behind a TUN in each, over a veth
// pair. It is Debian's.
func WireGuard(ctx context.Context) (*Path, error) {
	root, err := debroot.Open(ctx, "wireguard-go")
	if err != nil {
		return nil, err
	}
	p, err := Veth(1500)
	if err != nil {
		return nil, err
	}
	p.Name = "wireguard-go"
	if err := p.encrypt(ctx, root); err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	return p, nil
}

// encrypt starts the daemons and has them know each other.
func (p *Path) encrypt(ctx context.Context, root *debroot.Root) error {
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			return err
		}
		// Its control socket is in /run, which is its own here.
		cmd := root.Command(context.WithoutCancel(ctx), "sh", "-c", `mount -t tmpfs none /run && exec wireguard-go --foreground "$0"`, tunnel(i))
		if err := p.start(i, cmd); err != nil {
			return err
		}
	}
	for i := range keys {
		other := 1 - i
		text := fmt.Sprintf("set=1\nprivate_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%v:%d\nallowed_ip=%v/32\n\n",
			keys[i].Bytes(), wireGuardPort, keys[other].PublicKey().Bytes(), address(other).Addr(), wireGuardPort, tunnelAddress(other).Addr())
		if err := p.tell(i, text); err != nil {
			return err
		}
		if err := netns.Configure(netns.End{NS: p.ns[i], Link: tunnel(i), MTU: wireGuardMTU, Addr: []string{tunnelAddress(i).String()}}); err != nil {
			return err
		}
		p.Ends[i].Addr = tunnelAddress(i).Addr()
	}
	return nil
}

func tunnel(i int) string { return fmt.Sprintf("wg-bench%d", i) }

func tunnelAddress(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 87, 5, byte(i + 1)}), 24)
}

// tell configures a daemon as soon as it listens.
func (p *Path) tell(i int, text string) error {
	name := fmt.Sprintf("/proc/%d/root/run/wireguard/%s.sock", p.Daemons[i], tunnel(i))
	for deadline := time.Now().Add(ready); ; time.Sleep(5 * time.Millisecond) {
		if err := p.Broken(); err != nil {
			return err
		}
		conn, err := net.Dial("unix", name)
		if err != nil && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(deadline)
		if _, err := conn.Write([]byte(text)); err != nil {
			return err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && strings.TrimSpace(line) != "errno=0" {
			err = errors.New("wireguard-go refuses its configuration: " + strings.TrimSpace(line))
		}
		return err
	}
}
