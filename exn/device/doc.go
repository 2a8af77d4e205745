// Package device is the kernel's side of an interface: the [Device] that package
// exn moves packets through, and [Open], which makes one of Linux's TUN and TAP.
//
//	d, err := device.Open(device.Config{
//		Name: "exn0", Namespace: "blue", MAC: mac, MTU: 65535,
//		Addresses: []netip.Prefix{addr}, Offloads: exteth.CapAll, Owner: "node 7 of /run/exn",
//	})
//	n, vnet, err := d.Read(buf)      // one packet, perhaps a super-packet; never blocks
//	packet := buf[device.Headroom:][:n]
//	err = d.Write(packet, vnet)      // the bytes may be another process' memory
//	d.SetCarrier(true)
//	d.Close()                        // the interface is gone
//
// # What is opened
//
// The interface is made in an existing network namespace, and nothing else is made;
// this process stays where it is. It gets its MTU, a queue of [TxQueueLen], its
// addresses, and comes up. A TUN also gets the link-local address that follows from
// the MAC address of the node, and no other: the kernel's own would be random. A
// TAP has that MAC address, and the kernel derives the same.
//
// Every packet comes with a virtio header, so that super-packets stay whole and
// checksums partial ([TunTap.SetOffloads] switches each at run time).
//
// # Crashes
//
// The interface is persistent while it is open: when the process dies, it loses
// its carrier and keeps its addresses, routes and connections. The next Open of the
// name adopts it. That it is ours is written in its alias, which ip link shows; an
// interface of the name without it is never touched. Close removes the interface.
// Until it is known to be ours it is not persistent, so no crash leaves one
// that the next Open would refuse.
//
// # Why not a library
//
// golang.zx2c4.com/wireguard/tun has no TAP, reads a super-packet only to cut it
// up, asks for the MTU in whatever namespace the caller is in, and cannot leave an
// interface behind nor find it again. github.com/songgao/water knows neither virtio
// headers nor offloads, is not maintained, and shortens long names without a word.
// What is left for them to do is one ioctl; set-up is the netlink library's.
package device
