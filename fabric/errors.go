package fabric

import "errors"

// Errors that callers act on. Backends wrap them and add what failed and why.
var (
	// ErrFull means that there is no room now. Nothing was done; try again after the transmit
	// interrupt.
	ErrFull = errors.New("fabric: no room now")
	// ErrClosed means that the node, port or window is closed.
	ErrClosed = errors.New("fabric: closed")
	// ErrNoNode means that no node with that ID is attached.
	ErrNoNode = errors.New("fabric: no such node")
	// ErrNoPort means that the target VPID is not open. A backend that cannot know this when it
	// sends counts the message in RegVELONoPort at the target instead.
	ErrNoPort = errors.New("fabric: no such port")
	// ErrInUse means that the node ID or VPID is taken.
	ErrInUse = errors.New("fabric: in use")
	// ErrVersion means that the fabric is of another version of exnet.
	ErrVersion = errors.New("fabric: another version")
	// ErrRange means that a number is outside its legal range.
	ErrRange = errors.New("fabric: out of range")
	// ErrLength means a VELO payload that is empty or above VELOMaxPayload, or
	// an RMA length of 0 or above RMAMaxLength.
	ErrLength = errors.New("fabric: bad length")
	// ErrMemory means that the memory budget, a table or a limit of the
	// process is exhausted.
	ErrMemory = errors.New("fabric: out of memory or table space")
	// ErrRights means that a window or a memory asked for more rights than the memory was
	// allocated with.
	ErrRights = errors.New("fabric: right not available")
)
