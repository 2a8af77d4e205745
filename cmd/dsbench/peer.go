package main

import "exnet/cmd/dsbench/measure"

// peerCommand is the hidden command that measure.Start runs.
type peerCommand struct {
	Role measure.Role `arg:""`
	CPU  int          `arg:"" optional:"" default:"-1"`
}

// Run serves until the coordinator is gone.
func (c *peerCommand) Run() error { return measure.Serve(c.Role, c.CPU, contenders()) }
