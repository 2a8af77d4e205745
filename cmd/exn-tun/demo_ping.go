package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"time"
)

// pings is how many echo requests are sent.
const pings = 10

// ping sends echo requests from the second host to an address of the first, and returns
// the shortest round trip. There may be no ping program.
func (d *demonstration) ping(ctx context.Context, address string) (best time.Duration, err error) {
	d.line.say("ping %s over exn0", address)
	var c *net.IPConn
	if err := d.ns[1].Do(func() error { c, err = net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(address)}); return err }); err != nil {
		return 0, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Now()) })()
	const echo, id = 8, 0xe40
	for n := range uint16(pings) {
		b := []byte{echo, 0, 0, 0}
		b = binary.BigEndian.AppendUint16(b, id)
		b = binary.BigEndian.AppendUint16(b, n)
		sum := uint32(echo)<<8 + id + uint32(n)
		binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
		start := time.Now()
		_ = c.SetReadDeadline(start.Add(2 * time.Second))
		if _, err := c.Write(b); err != nil {
			return 0, fmt.Errorf("ping %s: %w", address, err)
		}
		var answer [64]byte
		for {
			k, _, err := c.ReadFrom(answer[:]) // Read would give the IP header, too
			if err != nil {
				return 0, fmt.Errorf("ping %s: %w", address, err)
			}
			// An answer to another echo request may come here as well.
			if k >= 8 && answer[0] == 0 && binary.BigEndian.Uint32(answer[4:]) == id<<16|uint32(n) {
				break
			}
		}
		if t := time.Since(start); best == 0 || t < best {
			best = t
		}
	}
	return best, nil
}
