package directsockets

import "exnet/directsockets/status"

// The reasons why a connection is on TCP, as ext-ds.md numbers them.
const (
	reasonNone status.Reason = iota
	reasonSetting
	reasonDirectory
	reasonNoPeer
	reasonAddress
	reasonProof
	reasonVersion
	reasonMemory
	reasonFiles
	reasonLanes
	_ // waiters
	reasonUncounted
	_ // shared between processes
	_ // stdio
	reasonOption
	_ // nested or inherited epoll set
	reasonPeerGone
	reasonTripwire
	reasonHostile
	_ // process died inside a call
	reasonTest
	_ // privilege
	reasonRefused
	_ // io_uring
	reasonRaw
	reasonPolicy
	reasonBrief
	reasonNAT
	reasonUnread
	_ // seccomp
	reasonPlain
)
