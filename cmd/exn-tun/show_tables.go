package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/shm"
	"exnet/napi"
)

// table prints lines of columns that are separated by tabs.
func table(w io.Writer, print func(row func(format string, a ...any))) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	print(func(format string, a ...any) { fmt.Fprintf(t, format+"\n", a...) })
	t.Flush()
}

type showNodesCommand struct{}

// nodeView is a node as the directory knows it, and as one daemon does.
type nodeView struct {
	shm.NodeInfo
	Peer *exn.PeerState `json:"peer,omitempty"`
}

// Run lists the nodes also where no daemon runs: then there are others, such as
// programs with a stack of their own.
func (*showNodesCommand) Run(c *showCommand, out output) error {
	return c.repeat(out, func(ctx context.Context, w io.Writer) error {
		list, err := shm.List(c.dir())
		if err != nil {
			return err
		}
		peers := make(map[fabric.NodeID]exn.PeerState)
		s, err := c.state(ctx)
		if err != nil && (c.Node != nil || c.Name != "") {
			return err
		}
		for _, p := range s.Interface.Peers {
			peers[p.Node] = p
		}
		nodes := make([]nodeView, len(list))
		if i := s.Interface; err == nil { // itself, as others see it
			peers[i.Node] = exn.PeerState{Node: i.Node, MAC: i.MAC, Met: true, Version: exteth.Version, MTU: i.MTU, Takes: i.Settings.Offloads}
		}
		for i, n := range list {
			nodes[i].NodeInfo = n
			if p, ok := peers[n.Node]; ok {
				nodes[i].Peer = &p
			}
		}
		if c.JSON {
			return json.NewEncoder(w).Encode(struct {
				Fabric string     `json:"fabric"`
				Nodes  []nodeView `json:"nodes"`
			}{c.dir(), nodes})
		}
		table(w, func(row func(string, ...any)) {
			row("NODE\tPID\tUID\tPROGRAM\tSINCE\tMAC\tMTU\tTAKES\tWAITING")
			for _, n := range nodes {
				row("%d\t%d\t%d\t%s\t%s\t%s", n.Node, n.PID, n.UID, visible(n.Program), n.Since.Format(time.DateTime), peerColumns(n.Peer))
			}
		})
		return nil
	})
}

// visible quotes what another user wrote if it could steer a terminal.
func visible(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// peerColumns are what a daemon knows of another node. It is not said hello to by
// programs that are no interfaces.
func peerColumns(p *exn.PeerState) string {
	switch {
	case p == nil:
		return "-\t-\t-\t-"
	case !p.Met:
		return p.MAC + "\t-\tnot heard of\t-"
	case p.Version != exteth.Version:
		return fmt.Sprintf("%s\t-\tversion %d, this is %d: use the same exnet\t-", p.MAC, p.Version, exteth.Version)
	}
	return fmt.Sprintf("%s\t%d\t%s\t%d", p.MAC, p.MTU, p.Takes, p.Waiting)
}

type showNeighboursCommand struct{}

// Run implements the command.
func (*showNeighboursCommand) Run(c *showCommand, out output) error {
	return c.look(out, func(s *state) any {
		return struct {
			Node       fabric.NodeID   `json:"node"`
			Neighbours []exn.Neighbour `json:"neighbours"`
		}{s.Interface.Node, s.Interface.Neighbours}
	}, func(w io.Writer, s *state) {
		if s.Interface.Kind == "tap" {
			fmt.Fprintf(w, "%s is a TAP device: the kernel keeps its neighbours (ip neigh show dev %s).\n", s.Link.Name, s.Link.Name)
			return
		}
		table(w, func(row func(string, ...any)) {
			row("ADDRESS\tMAC\tNODE\tSTATE\tSINCE")
			for _, n := range s.Interface.Neighbours {
				node := "-"
				if n.MAC != "" {
					node = fmt.Sprint(n.Node)
				}
				row("%s\t%s\t%s\t%s\t%s", n.Addr, n.MAC, node, n.State, s.Interface.Time.Sub(n.Updated).Round(time.Second))
			}
		})
	})
}

type showGroupsCommand struct{}

// Run implements the command.
func (*showGroupsCommand) Run(c *showCommand, out output) error {
	return c.look(out, func(s *state) any {
		return struct {
			Node   fabric.NodeID `json:"node"`
			Groups []exn.Group   `json:"groups"`
		}{s.Interface.Node, s.Interface.Groups}
	}, func(w io.Writer, s *state) {
		table(w, func(row func(string, ...any)) {
			row("ADDRESS\tMAC\tFABRIC GROUP")
			for _, g := range s.Interface.Groups {
				row("%s\t%s\t%d", g.Addr, g.MAC, g.Fabric)
			}
		})
	})
}

type showCountersCommand struct {
	All bool `help:"List counters that are zero, too."`
}

// Run implements the command.
func (counters *showCountersCommand) Run(c *showCommand, out output) error {
	return c.look(out, func(s *state) any {
		return struct {
			Node      fabric.NodeID     `json:"node"`
			Counters  map[string]uint64 `json:"counters"`
			Registers map[string]uint64 `json:"registers"`
		}{s.Interface.Node, s.Interface.Counters, s.Registers}
	}, func(w io.Writer, s *state) {
		table(w, func(row func(string, ...any)) {
			row("COUNTER\tVALUE")
			for _, group := range []map[string]uint64{s.Interface.Counters, s.Registers} {
				for _, name := range slices.Sorted(maps.Keys(group)) {
					switch {
					case group[name] == 0 && !counters.All:
					case name == fabric.RegGroups.String():
						row("%s\t%s", name, members(group[name]))
					default:
						row("%s\t%d", name, group[name])
					}
				}
			}
		})
	})
}

// members lists the bits that are set in a register whose bits are numbers of groups.
func members(bitmap uint64) string {
	var all []string
	for g := range 64 {
		if bitmap>>g&1 != 0 {
			all = append(all, strconv.Itoa(g))
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ",")
}

type showNAPICommand struct{}

// Run implements the command.
func (*showNAPICommand) Run(c *showCommand, out output) error {
	return c.look(out, func(s *state) any {
		return struct {
			Node     fabric.NodeID `json:"node"`
			NAPI     exn.NAPIState `json:"napi"`
			Settings exn.Settings  `json:"settings"`
		}{s.Interface.Node, s.Interface.NAPI, s.Interface.Settings}
	}, printNAPI)
}

func printNAPI(w io.Writer, s *state) {
	if s.Interface.Kind == exn.RouterKind {
		fmt.Fprintf(w, "%s is a port of a router, which has no polls and budgets to show.\n", s.Link.Name)
		return
	}
	n, set := s.Interface.NAPI, s.Interface.Settings
	fmt.Fprintf(w, "mode %s  busy-poll %v  itr %s  eager %d  multicast-eager %d  copy %s  buffers %d\n",
		n.Mode, set.BusyPoll, itrName(set.ITR), set.Eager, set.MulticastEager, onOff(set.Copy), set.Buffers)
	fmt.Fprintf(w, "turns %d  yields %d  losses %d  looks %d  sleeps %d  rests %d\n", n.Loop.Turns, n.Loop.Yields, n.Loop.Losses, n.Loop.Looks, n.Loop.Sleeps, n.Loop.Rests)
	fmt.Fprintln(w, following(n.Follow))
	table(w, func(row func(string, ...any)) {
		row("SOURCE\tBUDGET\tPOLLS\tEXHAUSTED\tBLOCKED\tWORK\tBYTES\tINTERRUPTS\tSUPPRESSED\tRECHECKS\tTHROTTLED\tITR")
		for _, src := range n.Sources {
			st := src.Stats
			itr := "-"
			if st.ITRRate > 0 {
				itr = fmt.Sprintf("%s, %d/s", src.State, st.ITRRate)
			}
			row("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s", src.Name, src.Budget, st.Polls, st.Exhausted, st.Blocked,
				st.Work, st.Bytes, st.Interrupts, st.Suppressed, st.Rechecks, st.Throttled, itr)
		}
	})
}

// following tells where the loop is kept.
func following(f exn.FollowState) string {
	switch {
	case f.Off != "":
		return "follows no program: " + f.Off
	case f.CPU < 0:
		return fmt.Sprintf("follows no program just now  moves %d", f.Moves)
	}
	return fmt.Sprintf("follows programs on CPU %d  moves %d", f.CPU, f.Moves)
}

// itrName is how up's flag names a policy.
func itrName(i napi.ITR) string {
	switch i.Policy {
	case napi.ITROff:
		return "off"
	case napi.ITRDynamic:
		return "dynamic"
	}
	return fmt.Sprintf("%d/s", i.Rate)
}
