// Package mantest checks manual pages against the command line that they are of.
package mantest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"exnet/internal/manpage"
)

// Check fails the test unless the directory has the page of the program and of each of its
// commands, with all of their text, and nothing else.
func Check(t *testing.T, app *kong.Application, dir string) {
	t.Helper()
	var want []string
	for _, node := range manpage.Nodes(app) {
		name := manpage.Title(node) + ".1"
		want = append(want, name)
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, complaint := range Malformed(string(text)) {
			t.Errorf("%s: %s", name, complaint)
		}
		for _, lost := range Lost(node, string(text)) {
			t.Errorf("%s does not have %q:\n%s", name, lost, text)
		}
		formatted(t, filepath.Join(dir, name))
	}
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("pages %v, want %v", got, want)
	}
}

// formatted has groff complain, where it is installed.
func formatted(t *testing.T, file string) {
	t.Helper()
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	var said bytes.Buffer
	cmd := exec.Command(groff, "-man", "-Kutf8", "-Tutf8", "-ww", "-z", file)
	cmd.Stderr = &said
	// Some versions have no warnings that they do not give to their own macros.
	if err := cmd.Run(); err != nil || strings.Contains(said.String(), filepath.Base(file)) {
		t.Errorf("groff: %v\n%s", err, &said)
	}
}

var (
	request = regexp.MustCompile(`^\.(ad l|nh|(TH|SH|B|PP|TP|RS|RE|nf|fi)( "[^"]*")*)$`)
	escape  = regexp.MustCompile(`\\(e|-|&|f[BIR]|\((aq|ga|ha|ti|dq))`)
)

// Malformed says what is wrong with a page as roff.
func Malformed(page string) (complaints []string) {
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	if len(lines) < 6 || !strings.HasPrefix(lines[0], `.TH "`) || lines[3] != `.SH "NAME"` || !strings.Contains(lines[4], ` \- `) {
		complaints = append(complaints, "it does not begin with .TH, .SH NAME and a name with its description")
	}
	depth := 0
	for _, line := range lines {
		rest := escape.ReplaceAllString(line, "")
		switch {
		case strings.HasPrefix(line, ".") && !request.MatchString(line):
			complaints = append(complaints, "no known request: "+line)
		case strings.TrimSpace(line) == "":
			complaints = append(complaints, "an empty line")
		case strings.HasPrefix(line, "'"):
			complaints = append(complaints, "a line that is a request by accident: "+line)
		case strings.ContainsAny(rest, "-'`^~\t"), !strings.HasPrefix(line, ".") && strings.Contains(rest, `"`):
			complaints = append(complaints, "a character that is not escaped: "+line)
		case strings.Contains(rest, `\`):
			complaints = append(complaints, "an unknown escape: "+line)
		}
		switch line {
		case ".RS":
			depth++
		case ".RE":
			depth--
		}
	}
	if depth != 0 || strings.Count(page, "\n.nf\n") != strings.Count(page, "\n.fi\n") {
		complaints = append(complaints, "an indentation without its end")
	}
	return complaints
}

// Lost are the texts of a command, its arguments and flags that its page does not have.
func Lost(node *kong.Node, page string) (lost []string) {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if name, argument, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(line, ".") {
			b.WriteString(line)
		} else if name == ".SH" || name == ".B" {
			b.WriteString(strings.Trim(argument, `"`) + "\n")
		}
	}
	plain := words(strings.NewReplacer(`\e`, `\`, `\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\(dq`, `"`,
		`\&`, "", `\fB`, "", `\fI`, "", `\fR`, "").Replace(b.String()))
	need := func(text string) {
		if !strings.Contains(plain, words(text)) {
			lost = append(lost, text)
		}
	}
	for paragraph := range strings.SplitSeq(node.Help+"\n\n"+node.Detail, "\n\n") {
		need(strings.TrimPrefix(paragraph, "Exit codes: "))
	}
	for _, argument := range node.Positional {
		need(argument.Help)
	}
	own, inherited := manpage.Flags(node)
	for _, f := range slices.Concat(own, inherited) {
		name := "--" + f.Name
		if f.Tag.Negatable != "" {
			name = "--[no-]" + f.Name
		}
		if f.Short != 0 {
			name = "-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() && !f.IsCounter() {
			name += "=" + f.FormatPlaceHolder()
		}
		need(name + " " + kong.DefaultHelpValueFormatter(f.Value))
	}
	for _, child := range node.Children {
		if !child.Hidden {
			need(manpage.Title(child) + "(1) " + child.Help)
		}
	}
	return lost
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }
