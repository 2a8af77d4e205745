package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
	"exnet/fabric/directory"
)

type showSocketsCommand struct {
	All bool `help:"List listening and unconnected sockets, too (as ss -a)."`
}

// Help is the long text of --help.
func (*showSocketsCommand) Help() string {
	return `Lists the TCP sockets of programs that exn-tun run has started, as ss -tnp lists those of all programs. You see your own programs; root sees those of all users.

STATE is lane (shared memory), tcp, or a step between the two. ` +
		`The next four columns are bytes read/written: by the kernel's TCP, and in shared memory by VELO (small messages), RMA (large writes, through a window) and ZCOPY (straight from one program's memory to the other's). ` +
		`REASON says why a socket is on TCP, or was. It names the program at the other end if your user may see that.`
}

// A socketRow is one socket in the output.
type socketRow struct {
	Program string         `json:"program"`
	PID     int            `json:"pid"`
	Fabric  string         `json:"fabric"`
	Local   netip.AddrPort `json:"local"`
	Peer    netip.AddrPort `json:"peer"`
	Inode   uint64         `json:"inode"`
	State   string         `json:"state"`
	Reads   string         `json:"reads"`  // "lane" or "tcp"
	Writes  string         `json:"writes"` // likewise
	Reason  string         `json:"reason,omitempty"`
	Why     string         `json:"why,omitempty"` // the reason, with who is at the other end where that matters
	Other   string         `json:"peer_program,omitempty"`
	OtherID int            `json:"peer_pid,omitempty"`
	Remedy  string         `json:"remedy,omitempty"`
	TCP     status.Bytes   `json:"tcp"`
	VELO    status.Bytes   `json:"velo"`
	RMA     status.Bytes   `json:"rma"`
	ZCopy   status.Bytes   `json:"zcopy"`
}

// socketRows is what there is to see now.
type socketRows struct {
	Sockets  []socketRow `json:"sockets"`
	Problems []string    `json:"problems,omitempty"` // processes that could not be read
}

func (c *showSocketsCommand) Run(show *showCommand, out output, messages messages) error {
	if show.Node != nil || show.Name != "" {
		return fmt.Errorf("%w: --node and --name choose an interface, and sockets belong to programs; leave them out", errUsage)
	}
	// It need not exist here: a container may know it by a name of its own.
	if err := directory.Check(show.Fabric, directory.Self()); show.Fabric != "" && errors.Is(err, unix.ENOTDIR) {
		return err
	}
	return show.repeat(out, func(_ context.Context, w io.Writer) error {
		rows, err := c.rows(show.Fabric)
		if err != nil {
			return err
		}
		if len(rows.Sockets) == 0 && !show.JSON {
			fmt.Fprintf(messages, "exn-tun: %s\n", nothingSeen(show.Fabric))
		}
		if show.JSON {
			return json.NewEncoder(w).Encode(rows)
		}
		return rows.print(w, messages)
	})
}

// nothingSeen says why the list is empty.
func nothingSeen(fabric string) string {
	who := "of this user"
	if os.Geteuid() == 0 {
		who = "on this host"
	}
	if fabric != "" {
		who += " with the fabric directory " + fabric
	}
	return "no program " + who + " that was started by exn-tun run has a TCP connection"
}

// rows lists the sockets, those of one fabric directory if it is named.
func (c *showSocketsCommand) rows(fabric string) (socketRows, error) {
	rows := socketRows{Sockets: []socketRow{}}
	processes, err := status.All()
	if err != nil {
		return rows, err
	}
	status.Explain(processes)
	for _, p := range processes {
		if fabric != "" && !p.In(fabric) {
			continue
		}
		if p.Err != nil {
			rows.Problems = append(rows.Problems, fmt.Sprintf("%s (process %d): %v", p.Program, p.PID, p.Err))
		}
		for _, s := range p.Sockets {
			if !c.All && (s.State == status.New || s.State == status.Listener) {
				continue
			}
			row := socketRow{Program: p.Program, PID: p.PID, Fabric: p.Fabric, Local: s.Local, Peer: s.Remote, Inode: s.Inode,
				State: s.State.String(), Reads: way(s.ReadsLane), Writes: way(s.WritesLane), TCP: s.TCP, VELO: s.VELO, RMA: s.RMA, ZCopy: s.ZCopy}
			if s.Reason != status.None {
				row.Reason, row.Why, row.Remedy = s.Reason.String(), s.Why(), s.Remedy()
			}
			if s.Peer.PID != 0 {
				row.Other, row.OtherID = s.Peer.Program, s.Peer.PID
			}
			rows.Sockets = append(rows.Sockets, row)
		}
	}
	return rows, nil
}

func (rows socketRows) print(out io.Writer, messages messages) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROGRAM\tPID\tLOCAL\tPEER\tSTATE\tTCP\tVELO\tRMA\tZCOPY\tREASON")
	for _, r := range rows.Sockets {
		state := r.State
		if state == status.Lane.String() && r.Reads != r.Writes {
			state = fmt.Sprintf("lane (reads %s)", r.Reads)
		} else if state == status.Lane.String() && r.Reads == way(false) {
			state = "lane (not yet)"
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", r.Program, r.PID, place(r.Local), place(r.Peer), state,
			bothWays(r.TCP), bothWays(r.VELO), bothWays(r.RMA), bothWays(r.ZCopy), r.Why), "\t"))
	}
	for _, p := range rows.Problems {
		fmt.Fprintf(messages, "exn-tun: %s\n", p)
	}
	return w.Flush()
}

func way(lane bool) string {
	if lane {
		return "lane"
	}
	return "tcp"
}

func place(a netip.AddrPort) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}

// bothWays prints bytes read/written with at most four digits each.
func bothWays(b status.Bytes) string {
	if b.Sum() == 0 {
		return "-"
	}
	return amount(b.Read) + "/" + amount(b.Written)
}

func amount(n uint64) string {
	units := []string{"", "K", "M", "G", "T", "P", "E"}
	v, i := float64(n), 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 || v >= 100 {
		return fmt.Sprintf("%.0f%s", v, units[i])
	}
	return fmt.Sprintf("%.1f%s", v, units[i])
}
