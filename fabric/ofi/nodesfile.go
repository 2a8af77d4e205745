package ofi

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/BurntSushi/toml"

	"exnet/fabric"
)

// A Member is a node that may be attached, and where it listens.
type Member struct {
	ID      fabric.NodeID
	Address netip.AddrPort
}

// ReadNodes reads the file that names all nodes of a fabric, the same on each
// host:
//
//	[[node]]
//	id = 1
//	address = "10.0.0.1:7471"
//
//	[[node]]
//	id = 2
//	address = "10.0.0.2:7471"
func ReadNodes(file string) ([]Member, error) {
	var text struct {
		Node []struct {
			ID      *uint32 `toml:"id"`
			Address string  `toml:"address"`
		} `toml:"node"`
	}
	meta, err := toml.DecodeFile(file, &text)
	if err != nil {
		return nil, fmt.Errorf("nodes file: %w", err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("nodes file %s: %v is not known; a [[node]] has id and address", file, unknown[0])
	}
	var all []Member
	for i, n := range text.Node {
		address, err := netip.ParseAddrPort(n.Address)
		switch {
		case n.ID == nil || *n.ID > uint32(fabric.MaxNodeID):
			return nil, fmt.Errorf("nodes file %s: node %d of the list has no id from 0 to %d", file, i+1, fabric.MaxNodeID)
		case err != nil || address.Port() == 0 || address.Addr().IsUnspecified() || address.Addr().Zone() != "":
			return nil, fmt.Errorf("nodes file %s: node %d has the address %q; write an IP address and a port, like 10.0.0.1:7471", file, *n.ID, n.Address)
		}
		all = append(all, Member{fabric.NodeID(*n.ID), netip.AddrPortFrom(address.Addr().Unmap(), address.Port())})
	}
	if err := checkMembers(all); err != nil {
		return nil, fmt.Errorf("nodes file %s: %w", file, err)
	}
	return all, nil
}

// checkMembers sorts a list and refuses one that names something twice.
func checkMembers(all []Member) error {
	if len(all) == 0 {
		return errors.New("there is no node in it")
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	at := make(map[netip.AddrPort]fabric.NodeID)
	for i, m := range all {
		if i > 0 && all[i-1].ID == m.ID {
			return fmt.Errorf("node %d is in it twice: %w", m.ID, fabric.ErrInUse)
		}
		if other, found := at[m.Address]; found {
			return fmt.Errorf("nodes %d and %d have the same address %v: %w", other, m.ID, m.Address, fabric.ErrInUse)
		}
		at[m.Address] = m.ID
	}
	return nil
}
