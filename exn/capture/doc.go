// Package capture streams the frames of an interface as pcapng, which Wireshark and tshark read.
// The comment of each frame says what only the fabric knows of it.
//
//	in the daemon:      err := capture.Stream(ctx, connection, iface, about, options)
//	in the reader:      r := capture.NewReader(connection)
//	                    for { b, err := r.Next(); file.Write(b.Raw); fmt.Println(b.Frame.Line()) }
//
// The daemon writes pcapng itself, so there is one format from the tap to the file. The Reader is
// for that stream, not for other pcapng files.
//
// # Comments
//
// A comment consists of these words. tshark finds frames by them, for example with frame.comment
// contains "rendezvous":
//
//	out 7->3            sent by node 7 to node 3; in 3->7: received
//	out 7->group 63     sent to a multicast group of the fabric
//	eager VELO          in VELO messages
//	rendezvous RMA      advertised by VELO, fetched by an RMA GET
//	gso=tcp4/1448       a super-packet, to be cut into TCP segments of 1448 bytes
//	csum=34+16          the checksum at byte 34+16 is partial: of the pseudo-header only
//
// # Filters
//
// A filter consists of these tests, joined by and, or, not and parentheses:
//
//	host ADDR           from or to an IPv4 or IPv6 address (ARP: about it)
//	net PREFIX          the same of a subnet, such as 10.2.0.0/24
//	port N              from or to a TCP or UDP port
//	node N              from or to a node of the fabric
//	arp ip ip6 tcp udp icmp icmp6
//	in out              received, sent
//	eager rendezvous    how the frame crossed the fabric
//	multicast           to a group, broadcasts included
//
// Precedence is as in pcap filters: not before and before or. An empty filter matches all frames.
//
// # Cost
//
// Without a capture there is no cost. The tap copies frames into a queue of bounded size and never
// waits. A frame that does not fit is missing from the capture, and counted there.
package capture
