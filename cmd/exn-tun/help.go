package main

import "github.com/alecthomas/kong"

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command to explain."`
}

func (h *helpCommand) Run(parser *kong.Kong) error {
	_, err := parser.Parse(append(h.Command, "--help"))
	return err
}
