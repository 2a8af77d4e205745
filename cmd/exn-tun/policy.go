package main

import (
	"fmt"

	"exnet/directsockets/policy/policyfile"
)

type policyCommand struct {
	File string `arg:"" optional:"" help:"The policy file to check." placeholder:"FILE.toml"`
}

// Help is the long text of --help.
func (*policyCommand) Help() string {
	return `Without a file, prints an example that explains every key. With a file, prints how many rules it has, or what is wrong in which line.

exn-tun run --policy FILE and EXN_POLICY=FILE use it. Programs that are already running keep the policy that they were started with.

Exit codes: 0 the file is good, 2 it is not.`
}

func (c *policyCommand) Run(out output) error {
	if c.File == "" {
		_, err := fmt.Fprint(out, policyfile.Example)
		return err
	}
	p, err := policyfile.Read(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: good: rules for programs: %d, for connections: %d\n", c.File, len(p.Programs), len(p.Connections))
	return err
}
