package manpage_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"exnet/internal/manpage"
	"exnet/internal/manpage/mantest"
)

type boil struct {
	Strong bool   `short:"s" help:"'Strong', as ~3 min; C:\\temp, \"x\" and -x." negatable:""`
	Secret bool   `hidden:"" help:"For tests."`
	Cup    string `arg:"" help:".cup is where it goes."`
}

func (*boil) Help() string {
	return "First.\n'Second' begins with a quote,\n.third with a dot.\n\n\ttea boil -s .cup\n\t.cup\n\nLast.\n\nExit codes: 0 tea, 1 none."
}

type grammar struct {
	Heat int  `default:"90" help:"How hot."`
	Boil boil `cmd:"" help:"Boil water."`
	Peer boil `cmd:"" hidden:"" help:"Nothing for users."`
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(new(grammar), kong.Name("tea"), kong.Description("Makes tea.\n\nExit codes: 0 done."))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

const boilPage = `.TH "TEA\-BOIL" "1" "" "exnet" "exnet manual"
.nh
.ad l
.SH "NAME"
tea\-boil \- boil water
.SH "SYNOPSIS"
.B "tea boil"
[flags] <cup>
.SH "DESCRIPTION"
Boil water.
.PP
First.
\&\(aqSecond\(aq begins with a quote,
\&.third with a dot.
.PP
.RS
.nf
tea boil \-s .cup
\&.cup
.fi
.RE
.PP
Last.
.SH "ARGUMENTS"
.TP
\fIcup\fR
\&.cup is where it goes.
.SH "OPTIONS"
.TP
\fB\-s\fR, \fB\-\-[no\-]strong\fR
\&\(aqStrong\(aq, as \(ti3 min; C:\etemp, \(dqx\(dq and \-x.
.SH "OPTIONS OF TEA"
.TP
\fB\-\-heat\fR=\fI90\fR
How hot.
.SH "ENVIRONMENT"
What it reads.
.TP
\fBTEA_CUP\fR
A cup.
.SH "EXIT STATUS"
.PP
0 tea, 1 none.
.SH "SEE ALSO"
\fBtea\fR(1)
`

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	extra := manpage.Section{Command: "boil", Title: "ENVIRONMENT", Intro: "What it reads.", Entries: []manpage.Entry{{Name: "TEA_CUP", Text: "A cup."}}}
	names, err := manpage.Write(dir, model(t), extra)
	if err != nil || !slices.Equal(names, []string{"tea.1", "tea-boil.1"}) {
		t.Fatalf("%v, %v", names, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tea-boil.1"))
	if err != nil || string(text) != boilPage {
		t.Errorf("%v, got\n%s\nwant\n%s", err, text, boilPage)
	}
	mantest.Check(t, model(t), dir)
}

func TestWriteFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := manpage.Write(filepath.Join(file, "man1"), model(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("below a file: %v", err)
	}
}

// What the check is for is found by it.
func TestMalformedAndLost(t *testing.T) {
	if bad := mantest.Malformed(boilPage); len(bad) != 0 {
		t.Errorf("%q", bad)
	}
	for was, becomes := range map[string]string{
		`.SH "NAME"`: `.SH "TITLE"`, `\-s .cup`: `-s .cup`, `\&.cup is`: `.cup is`, `\&\(aqSecond`: `'Second`, `\etemp`: `\temp`,
		"Last.\n": "Last.\n\n", ".RE\n": "", `\(dqx\(dq`: `"x"`,
	} {
		if bad := mantest.Malformed(strings.Replace(boilPage, was, becomes, 1)); len(bad) == 0 {
			t.Errorf("%q is taken for %q", becomes, was)
		}
	}
	node := manpage.Nodes(model(t))[1]
	for _, gone := range []string{"Boil water.\n", "Last.\n", "0 tea, 1 none.\n", "How hot.\n", `\-\-heat`, `\&.cup is where it goes.`, "\\&.third with a dot.\n"} {
		if lost := mantest.Lost(node, strings.Replace(boilPage, gone, "", 1)); len(lost) == 0 {
			t.Errorf("nobody misses %q", gone)
		}
	}
}
