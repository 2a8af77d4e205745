package path

import (
	"fmt"
	"os"
	"os/exec"

	"exnet/exn/netns"
	"exnet/fabric/dir"
)

// Bridge joins the two ends by an Ethernet bridge in a namespace of its own, as containers
// are, where exn-tun bridge says who is on it. daemon is the program exn-tun. Programs of
// the group, and root's, may use the fabric directory.
func Bridge(daemon string, group int) (*Path, error) {
	p, err := PlainBridge(group)
	if err != nil {
		return nil, err
	}
	if err := p.Announce(daemon); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// OwnUser as a group stands for none: only programs of our user may use the fabric directory.
const OwnUser = -1

// PlainBridge is Bridge without exn-tun bridge, until [Path.Announce].
func PlainBridge(group int) (*Path, error) {
	const hub = 2
	p, err := newPath("bridge", hub+1)
	if err != nil {
		return nil, err
	}
	if err := p.bridge(group, p.end(hub, 0)); err != nil {
		p.Close()
		return nil, fmt.Errorf("path %s: %w", p.Name, err)
	}
	return p, nil
}

func (p *Path) bridge(group int, hub netns.End) (err error) {
	if err := netns.Bridge(hub); err != nil {
		return err
	}
	for i := range p.Ends {
		if err := netns.Plug(hub, fmt.Sprintf("port%d", i), p.end(i, 0)); err != nil {
			return err
		}
		// Who is in no process' namespace is not found.
		if err := p.start(i, exec.Command("sleep", "infinity")); err != nil {
			return err
		}
	}
	if group == OwnUser {
		return p.private()
	}
	return p.share(group)
}

// Announce starts exn-tun bridge beside a bridge, and returns when it is ready.
func (p *Path) Announce(daemon string) error {
	hub := len(p.ns) - 1
	return p.up(hub, exec.Command(daemon, "bridge", "--fabric", p.Fabric(), p.end(hub, 0).Link))
}

// Peers is whose programs meet in the fabric directory: EXN_PEERS for those that use it.
func (p *Path) Peers() dir.Peers { return p.peers }

// share makes a fabric directory that programs of the group, and root's, may use.
func (p *Path) share(group int) (err error) {
	p.peers = dir.Group
	if p.dir, err = Runtime(); err != nil {
		return err
	}
	if err := os.Chmod(p.dir, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(p.Fabric(), 0o700); err != nil {
		return err
	}
	if err := os.Chown(p.Fabric(), -1, group); err != nil {
		return err
	}
	return os.Chmod(p.Fabric(), 0o770|os.ModeSetgid)
}
