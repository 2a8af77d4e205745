package shm

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
)

func TestConformance(t *testing.T) {
	fabrictest.Run(t, fabrictest.Harness{
		Fabric: func(t *testing.T) fabrictest.Attach {
			dir := fabricDir(t)
			return func(id fabric.NodeID) (fabric.Node, error) { return Attach(Config{Dir: dir, Node: id}) }
		},
	})
}
