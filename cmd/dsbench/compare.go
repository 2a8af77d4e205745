package main

import (
	"fmt"
	"os"

	"exnet/cmd/dsbench/report"
)

// compareCommand is `dsbench compare`.
type compareCommand struct {
	Before string `arg:"" help:"The earlier report: its results.json, or the output of --json."`
	After  string `arg:"" help:"The later report, likewise."`
	JSON   bool   `name:"json" help:"Print one JSON object instead of a table."`
	All    bool   `help:"Show also rows that did not change."`
}

// Help is the long text of --help.
func (*compareCommand) Help() string {
	return "Shows which rows differ by more than the noise of their own runs. Chance alone makes such a difference in less than one case of " +
		"a hundred (an exact Mann-Whitney test of the runs). That takes five runs or more in each report.\n\n" +
		"Where rows have a reference, the ratios to it are compared, because what slows the machine down slows the reference, too. Other rows are compared by their values, which means something only on the same quiet machine.\n\n" +
		"Rows with disturbed runs are marked as noisy. They count only if they differ by more than a factor of 2, which is what another program on the same CPU can cost.\n\n" +
		"Exit code 4 means that something became worse, by more than noise explains.\n\n" + exitHelp
}

// Run compares and prints.
func (c *compareCommand) Run(in *invocation) error {
	before, err := read(c.Before)
	if err != nil {
		return usageError{err}
	}
	after, err := read(c.After)
	if err != nil {
		return usageError{err}
	}
	compared := report.Compare(before, after)
	if len(compared.Changes) == 0 {
		return usageError{fmt.Errorf("%s and %s have no row in common: compare reports of the same command", c.Before, c.After)}
	}
	if c.JSON {
		err = compared.WriteJSON(in.stdout)
	} else {
		err = compared.WriteTable(in.stdout, c.All)
	}
	if err := printed("the comparison", err); err != nil {
		return err
	}
	if compared.Surely(report.Worse) > 0 {
		return errWorse
	}
	return nil
}

func read(name string) (*report.Report, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w; give the results.json of a report, or what --json printed", err)
	}
	defer f.Close()
	r, err := report.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
