package measure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"exnet/directsockets/status"
)

// A Lanes says what became of the connections of a run that asked for lanes of
// EXT-DS, as one end sees it. The bytes are those of both directions, warm-up included.
type Lanes struct {
	Connections int    `json:"connections"`
	Upgraded    int    `json:"upgraded"` // of which bytes went by a lane
	LaneBytes   uint64 `json:"lane_bytes"`
	TCPBytes    uint64 `json:"tcp_bytes"`

	// Why counts the others by what they say: a reason, or how far they were.
	Why map[string]int `json:"why,omitempty"`
}

// Add counts a connection that is about to be closed.
func (l *Lanes) Add(s status.Socket) {
	l.Connections++
	by := s.VELO.Sum() + s.RMA.Sum() + s.ZCopy.Sum()
	l.LaneBytes += by
	l.TCPBytes += s.TCP.Sum()
	if by > 0 {
		l.Upgraded++
		return
	}
	why := s.Reason.String()
	switch {
	case s.State == status.Counting && s.Reason == status.None:
		why = "too short to look for a lane"
	case s.Reason == status.None:
		why = "over before there was one (" + s.State.String() + ")"
	}
	if l.Why == nil {
		l.Why = map[string]int{}
	}
	l.Why[why]++
}

// Merge adds those of another run.
func (l *Lanes) Merge(other *Lanes) {
	l.Connections += other.Connections
	l.Upgraded += other.Upgraded
	l.LaneBytes += other.LaneBytes
	l.TCPBytes += other.TCPBytes
	for why, n := range other.Why {
		if l.Why == nil {
			l.Why = map[string]int{}
		}
		l.Why[why] += n
	}
}

// Share is the part of the bytes that went by lanes.
func (l *Lanes) Share() float64 {
	return float64(l.LaneBytes) / float64(max(1, l.LaneBytes+l.TCPBytes))
}

// Reason is what most of the others say; "" if there are none.
func (l *Lanes) Reason() string {
	if len(l.Why) == 0 {
		return ""
	}
	return slices.MaxFunc(slices.Sorted(maps.Keys(l.Why)), func(a, b string) int { return cmp.Compare(l.Why[a], l.Why[b]) })
}

// String is all of it in a line.
func (l *Lanes) String() string {
	text := fmt.Sprintf("%d of %d connections upgraded, %.1f %% of the bytes by lanes", l.Upgraded, l.Connections, 100*l.Share())
	if why := l.Reason(); why != "" {
		text += ", the others on TCP: " + why
	}
	return text
}
