package main

import (
	"exnet/fabric"
	"exnet/fabric/shm"
)

// attachSHM attaches a node to a shared-memory fabric.
func attachSHM(dir string) (fabric.Node, error) {
	n, err := shm.Attach(shm.Config{Dir: dir, Node: fabric.NodeAny})
	if err != nil {
		return nil, err // not a nil *shm.Node in an interface
	}
	return n, nil
}
