package ofi

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/test/ofi"
)

var networks atomic.Uint32

// members are the nodes of a fresh fabric, each at an address of its own of the
// loopback network.
func members(ids ...fabric.NodeID) []Member {
	return membersOf(os.Getpid(), int(networks.Add(1)), ids...)
}

// membersOf are those of a fabric of a process: no two processes that test at
// the same time share an address.
func membersOf(pid, network int, ids ...fabric.NodeID) (all []Member) {
	for i, id := range ids {
		a := fmt.Sprintf("127.%d.%d.%d:%d", 64+pid/250%180, pid%250, i+1, 7471+network%1000)
		all = append(all, Member{id, netip.MustParseAddrPort(a)})
	}
	return all
}

// TestConformanceOfLibfabric runs the suite over the real library, of each Debian release.
func TestConformanceOfLibfabric(t *testing.T) {
	if !ofi.Rerun(t) {
		return
	}
	fabrictest.Run(t, fabrictest.Harness{
		Allocates: raceAllocates,
		Fabric: func(t *testing.T) fabrictest.Attach {
			all := members(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, fabric.MaxNodeID)
			return func(id fabric.NodeID) (fabric.Node, error) {
				n, err := Attach(Config{Provider: "tcp", Node: id, Members: all, Timeout: time.Minute})
				if err != nil {
					return nil, err
				}
				return n, nil
			}
		},
	})
}
