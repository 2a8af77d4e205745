package measure

import (
	"net/netip"
	"time"
)

// A Role is the part of a process in a Duo.
type Role string

// The roles. Lead starts the operations and holds the clock, follow answers.
const (
	Lead   Role = "lead"
	Follow Role = "follow"
)

// Params are what a contender is told about the runs to come. Both halves get
// the same.
type Params struct {
	Size    int           `json:"size,omitempty"`    // bytes of one operation
	Buffers int           `json:"buffers,omitempty"` // operations under way
	Dir     string        `json:"dir,omitempty"`     // the fabric directory
	Pause   time.Duration `json:"pause,omitempty"`   // before every operation

	// For traffic between two network namespaces:
	Ends    [2]NetEnd `json:"ends,omitzero"`     // of lead and of follow
	Streams int       `json:"streams,omitempty"` // connections at a time
	Both    bool      `json:"both,omitempty"`    // as many again the other way
	Batch   int       `json:"batch,omitempty"`   // datagrams of Size handed over at a time
	Reverse bool      `json:"reverse,omitempty"` // follow sends
	Limit   int64     `json:"limit,omitempty"`   // bytes of each stream, or messages, after which a run ends; 0: none
	Verify  bool      `json:"verify,omitempty"`  // every byte is looked at
	Astray  bool      `json:"astray,omitempty"`  // datagrams may overtake each other
	Port    int       `json:"port,omitempty"`    // of follow; 0: any that is free
}

// A NetEnd is where one half of a traffic generator lives.
type NetEnd struct {
	NetNS string     `json:"netns"` // path of the network namespace; "": that of the process
	Addr  netip.Addr `json:"addr"`
}

// A Half is one process's side of a contender. All its methods are called by
// one goroutine, which is locked to its thread.
type Half interface {
	// Words is what the other half must know before it can run: addresses.
	Words() []uint64

	// Meet brings the other half's Words.
	Meet(words []uint64) error

	// Run does n operations with the other half and verifies what it got.
	// Follow runs before lead does. After an error the half is not used again.
	Run(n int) (Sample, error)

	// Close gives back what the half holds.
	Close() error
}

// A Contender makes the halves of something that can be measured.
type Contender func(Role, *Site, Params) (Half, error)

// A Sample is what one half saw in one run.
type Sample struct {
	// PerOp is the time of one operation in ns, by lead's clock. It includes
	// the end of the last one at the other side.
	PerOp float64 `json:"per_op,omitempty"`

	// Elapsed is the time of the run.
	Elapsed time.Duration `json:"elapsed"`

	// Mallocs counts heap objects allocated by the process during the run,
	// OnCPU is the processor time of the measuring thread, and Switches are
	// its voluntary context switches: how often it slept.
	Mallocs  uint64        `json:"mallocs"`
	OnCPU    time.Duration `json:"on_cpu"`
	Switches int64         `json:"switches"`

	// Rate is what the half received in bytes per second once traffic ran
	// evenly, Bytes all it received, for halves that move a stream.
	Rate  float64 `json:"rate,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`

	// Times are of the single operations in ns, for halves that time each.
	Times *Histogram `json:"times,omitempty"`

	// Lost is how many datagrams were sent that did not arrive, of Count that did.
	Lost  uint64 `json:"lost,omitempty"`
	Count uint64 `json:"count,omitempty"`

	// Slower is by how much the processor was slower just before or after than at its best:
	// 0.1 for 10 %, in sessions between hosts.
	Slower float64 `json:"slower,omitempty"`

	// CPU is the share of one CPU that the process used, for halves that
	// measure it.
	CPU float64 `json:"cpu,omitempty"`

	// Lanes is what became of the connections, for halves that use EXT-DS.
	Lanes *Lanes `json:"lanes,omitempty"`

	// Resident has the bytes of shared memory that are resident, by inode,
	// for halves that measure it.
	Resident map[string]int64 `json:"resident,omitempty"`
}

// Each is the Sample of n operations that took d together.
func Each(d time.Duration, n int) Sample {
	return Sample{PerOp: float64(d) / float64(max(1, n))}
}

// A Result is the sample of both halves.
type Result struct {
	N            int
	Lead, Follow Sample
}

// Noisy says that a side had a slower processor than it can have.
func (r Result) Noisy() bool { return max(r.Lead.Slower, r.Follow.Slower) > mostSlower }

// MallocsPerOp is the number of heap objects that both sides allocated per
// operation. As in testing.AllocsPerRun it is meant to show what an operation
// allocates, so what the runtime itself allocates once in a while is rounded
// off: less than one object in a thousand operations counts as none.
func (r Result) MallocsPerOp() float64 {
	per := float64(r.Lead.Mallocs+r.Follow.Mallocs) / float64(r.N)
	if per < 1e-3 {
		return 0
	}
	return per
}

// Undisturbed reports whether both sides, which polled all the time, had their
// processors to themselves. The runtime itself takes up to a percent.
func (r Result) Undisturbed() bool {
	const least = 0.95
	return min(r.Lead.share(), r.Follow.share()) >= least
}

// share is the part of the run that the thread had a processor.
func (s Sample) share() float64 { return float64(s.OnCPU) / float64(max(1, s.Elapsed)) }

// Slept is the share of the operations in which the half that slept less
// often slept.
func (r Result) Slept() float64 {
	return min(1, float64(min(r.Lead.Switches, r.Follow.Switches))/float64(r.N))
}
