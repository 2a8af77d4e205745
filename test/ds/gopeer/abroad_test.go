package gopeer_test

import (
	"fmt"
	"strings"
	"testing"

	"exnet/test/ds"
	"exnet/test/exn"
)

// DSS-4: ends in network namespaces of their own, joined by exn0, take lanes, in
// all pairings with a Go end.
func TestAbroad(t *testing.T) {
	fleet := exn.Up(t, exn.Options{})
	fleet.OnlyExn("other links register no addresses")
	here, there := fleet.Nodes[0], fleet.Nodes[1]
	library := ds.Library(t)
	for _, pair := range []string{"go-go", "go-c", "c-go"} {
		t.Run(pair, func(t *testing.T) {
			lane := uint64(0)
			for seed := range ds.Seeds(t, 3) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					env := append(ds.Preload(library, fleet.Fabric, settings(seed)...), "ORACLE_ADDRESS="+here.IPv4.String())
					of := map[string]language{"go": golang(t, env...), "c": c(t, seed%2 == 1, env...)}
					from, to, _ := strings.Cut(pair, "-")
					client, server := of[from], of[to]
					client.ns, server.ns = there.NS, here.NS
					conns := int(1 + seed%4)
					s := start(t, server, "server", "0", seed, conns)
					c := start(t, client, "client", <-s.port, seed, conns)
					for who, got := range map[*side]map[int]reading{c: c.wait(), s: s.wait()} {
						for n, r := range got {
							if r.bytes != r.total || r.how != "end" || len(got) != conns {
								t.Errorf("%s: connection %d of %d: %+v", who.name, n, len(got), r)
							}
						}
						_, by := who.lanes() // as the Go end says
						lane += by
					}
				})
			}
			if lane == 0 {
				t.Error("not a byte by a lane")
			}
		})
	}
}
