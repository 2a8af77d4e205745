package main

import (
	"github.com/alecthomas/kong"

	"exnet/internal/manpage"
)

// helpCommand is `dsbench help`.
type helpCommand struct {
	Man     string   `hidden:"" placeholder:"DIR" help:"Write the manual pages into this directory."`
	Command []string `arg:"" optional:"" help:"The command to explain."`
}

// Run explains a command, or writes what make man wants.
func (h *helpCommand) Run(parser *kong.Kong) error {
	if h.Man != "" {
		_, err := manpage.Write(h.Man, parser.Model)
		return err
	}
	if _, err := parser.Parse(append(h.Command, "--help")); err != nil {
		return usageError{err}
	}
	return nil
}
