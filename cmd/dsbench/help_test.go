package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"exnet/internal/manpage/mantest"
)

func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	var errs bytes.Buffer
	if code := run([]string{"help", "--man", dir}, io.Discard, &errs); code != exitOK || errs.Len() != 0 {
		t.Fatalf("exit code %d, said %q", code, &errs)
	}
	parser, err := newParser(io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	mantest.Check(t, parser.Model, dir)
}

func TestHelpCommand(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"help":        {exitOK, "Measure what exnet gains"},
		"help client": {exitOK, "Usage: dsbench client"},
		"help fly":    {exitUsage, "fly"},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(args), &out, &errs); code != want.code || !strings.Contains(out.String()+errs.String(), want.says) {
			t.Errorf("%s: exit code %d, printed %q, said %q", args, code, &out, &errs)
		}
	}
}
