package exn

import (
	"testing"

	"exnet/exteth"
)

// FuzzTransmit: whatever the kernel sends, whole packets arrive unchanged, and everything else ends
// in a counter.
func FuzzTransmit(f *testing.F) {
	add := func(p []byte, v exteth.VNet) {
		f.Add(p, v.Flags, uint8(v.GSO), v.HdrLen, v.GSOSize, v.CsumStart, v.CsumOffset)
	}
	add(udp(addr4(0), addr4(1), 100, 1), exteth.VNet{})
	add(udp(addr4(0), addr4(1), 3000, 1), exteth.VNet{Flags: exteth.NeedsChecksum, GSO: exteth.GSOUDP, GSOSize: 1000, CsumStart: 20, CsumOffset: 6})
	add(udp(addr6(0), addr6(1), 100, 1), exteth.VNet{})
	add([]byte{0x45}, exteth.VNet{})
	i, d := handDriven(f)
	f.Fuzz(func(t *testing.T, p []byte, flags, gso uint8, header, size, start, offset uint16) {
		if len(p) > 65535 {
			return
		}
		d[0].packet = p
		d[0].vnet = exteth.VNet{Flags: flags, GSO: exteth.GSOType(gso), HdrLen: header, GSOSize: size, CsumStart: start, CsumOffset: offset}
		d[0].left = 1
		for range 4 {
			turn(i[0])
			turn(i[1])
		}
		if d[0].left != 0 {
			t.Fatal("the packet was not read")
		}
		d[0].packet, d[0].vnet = udp(addr4(0), addr4(1), 10, 1), exteth.VNet{}
		deliver(i, d, 1) // the next one still arrives
	})
}
