package main

import (
	"fmt"
	"io"

	"exnet/exn/capture"
	"exnet/exn/control"
	"exnet/fabric/shm"
)

// A subject is what a daemon can be asked about: an interface, or a port of a router.
type subject struct {
	node   *shm.Node
	state  func() (state, error)
	frames capture.Source
}

// answer answers show and capture until the server is closed.
func (s subject) answer() (*control.Server, error) {
	return control.Listen(s.node.Dir(), s.node.ID(), map[string]control.Handler{
		stateQuestion: func(c *control.Call) error {
			now, err := s.state()
			if err != nil {
				return err
			}
			return c.Reply(now)
		},
		captureQuestion: s.capture,
	})
}

// capture answers captureQuestion.
func (s subject) capture(c *control.Call) error {
	var o capture.Options
	if err := c.Arguments(&o); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return err
	}
	now, err := s.state()
	if err != nil {
		return err
	}
	if err := c.Reply(nil); err != nil {
		return err
	}
	i := now.Interface
	return capture.Stream(c.Context, c, s.frames, capture.About{
		Program: "exn-tun " + version(), Name: i.Name, Node: i.Node,
		Description: fmt.Sprintf("node %d of %s, %s, MTU %d", i.Node, s.node.Dir(), i.MAC, i.MTU),
	}, o)
}

// metricsOf writes the metrics of all subjects of a daemon.
func metricsOf(subjects []subject) func(io.Writer) error {
	return func(w io.Writer) error {
		var all []*state
		for _, s := range subjects {
			now, err := s.state()
			if err != nil {
				return err
			}
			all = append(all, &now)
		}
		writeMetrics(w, all...)
		return nil
	}
}
