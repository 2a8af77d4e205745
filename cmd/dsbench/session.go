package main

import (
	"fmt"
	"net"
	"net/netip"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/traffic"
)

// The most that a server does for a client.
const (
	mostStreams = 128
	mostBytes   = 16 << 20 // of one write or message
)

// remoteLoads are the contenders that make sense between two hosts.
var remoteLoads = []string{"traffic/stream", "traffic/pingpong", "traffic/connect", "traffic/datagrams",
	"traffic/ds-stream", "traffic/ds-pingpong", "traffic/ds-connect"}

// sessionContenders are those, for the side of a session whose control connection is given:
// they live at its ends and in the fabric directory of its own side, whatever the other side
// says. A server has one for each session.
func sessionContenders(role measure.Role, control net.Conn, dataPort int, fabric string) (map[string]measure.Contender, error) {
	here, err := endOf(control.LocalAddr())
	if err != nil {
		return nil, err
	}
	there, err := endOf(control.RemoteAddr())
	if err != nil {
		return nil, err
	}
	ends := [2]measure.NetEnd{here, there}
	if role == measure.Follow {
		ends = [2]measure.NetEnd{there, here}
	}
	all, used := map[string]measure.Contender{}, false
	for _, name := range remoteLoads {
		make := traffic.Contenders()[name]
		all[name] = func(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
			if p.Streams < 0 || p.Streams > mostStreams || p.Size < 0 || p.Size > mostBytes || p.Batch < 0 || p.Batch > 1 || p.Limit < 0 || p.Pause != 0 {
				return nil, fmt.Errorf("at most %d streams and %d bytes at a time", mostStreams, mostBytes)
			}
			if used {
				return nil, fmt.Errorf("one load in a session")
			}
			used = true
			p.Ends, p.Dir, p.Port = ends, fabric, dataPort
			return make(role, site, p)
		}
	}
	return all, nil
}

// endOf is an end of a TCP connection.
func endOf(addr net.Addr) (measure.NetEnd, error) {
	a, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return measure.NetEnd{}, fmt.Errorf("the address %v: %w", addr, err)
	}
	if a.Addr().Zone() != "" {
		return measure.NetEnd{}, fmt.Errorf("the address %v is link-local: give the host another one", addr)
	}
	return measure.NetEnd{Addr: a.Addr().Unmap()}, nil
}
