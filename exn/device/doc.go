// Package device is the kernel's end of an interface: the [Device] that package exn moves packets
// through, and [Open], which makes one of Linux's TUN and TAP.
//
//	d, err := device.Open(device.Config{
//		Name: "exn0", Namespace: "blue", MAC: mac, MTU: 65535,
//		Addresses: []netip.Prefix{addr}, Offloads: exteth.CapAll, Owner: "node 7 of /run/exn",
//	})
//	n, vnet, err := d.Read(buf)      // one packet, perhaps a super-packet; never blocks
//	packet := buf[device.Headroom:][:n]
//	err = d.Write(packet, vnet)      // the bytes may lie in another process's memory
//	d.SetCarrier(true)
//	d.Close()                        // removes the interface
//
// # What is opened
//
// The interface is made in an existing network namespace; nothing else is made, and this process
// stays in its own namespace. The interface gets its MTU, a queue of [TxQueueLen] packets and its
// addresses, and comes up. A TUN also gets the link-local address derived from the node's MAC
// address, and no other: the kernel's own would be random. A TAP has that MAC address, and the
// kernel derives the same link-local address.
//
// Every packet comes with a virtio header, so super-packets stay whole and checksums partial.
// [TunTap.SetOffloads] switches the offloads at run time.
//
// # Crashes
//
// The interface is persistent while it is open. When the process dies, the interface loses its
// carrier but keeps its addresses, routes and connections. The next Open of that name adopts it. An
// alias, which ip link shows, marks it as ours; Open never touches an interface without that alias.
// Close removes the interface. An interface becomes persistent only after it has the alias, so no
// crash leaves one that the next Open would refuse.
//
// # Why not a library
//
// golang.zx2c4.com/wireguard/tun has no TAP, and cuts every super-packet that it reads. It asks for
// the MTU in whatever namespace the caller is in. It can neither leave an interface behind nor find
// it again. github.com/songgao/water knows neither virtio headers nor offloads, is not maintained,
// and silently truncates long names. What such a library would save is one ioctl; the netlink
// library does the set-up.
package device
