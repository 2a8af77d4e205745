package main

import (
	"os"
	"runtime/metrics"

	"exnet/exn"
	"exnet/exn/device"
	"exnet/fabric"
	"exnet/fabric/shm"
)

// stateQuestion is the command of the control protocol that asks for a state.
const stateQuestion = "state"

// A state is all that a daemon knows about itself: what show prints, and what the
// metrics are made of.
type state struct {
	Version   string            `json:"version"`
	PID       int               `json:"pid"`
	Fabric    string            `json:"fabric"`
	Namespace string            `json:"netns,omitempty"`
	Link      device.Status     `json:"link"` // the kernel's side
	Interface exn.Snapshot      `json:"interface"`
	Registers map[string]uint64 `json:"registers"` // the fabric's side
	Process   processState      `json:"process"`
}

// A processState is what the daemon itself needs. What keeps growing is a leak;
// objects that are allocated with every packet are a mistake.
type processState struct {
	AllocatedObjects uint64 `json:"allocated_objects"` // since the start
	HeapBytes        uint64 `json:"heap_bytes"`        // of objects, those not yet collected included
	Goroutines       uint64 `json:"goroutines"`
	Descriptors      int    `json:"descriptors"`
}

// thisProcess reads the state of this process. It does not stop the world.
func thisProcess() (s processState) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(samples)
	for i, to := range []*uint64{&s.AllocatedObjects, &s.HeapBytes, &s.Goroutines} {
		if samples[i].Value.Kind() == metrics.KindUint64 { // as of Go 1.26; else unknown
			*to = samples[i].Value.Uint64()
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.Descriptors = len(open) - 1 // without the one that reads the directory
	}
	return s
}

// registers reads the register file of a node.
func registers(n *shm.Node) map[string]uint64 {
	all := make(map[string]uint64)
	for r := range fabric.RegisterCount {
		if v, err := n.ReadRegister(r); err == nil {
			all[r.String()] = v
		}
	}
	return all
}
