package manpage

import (
	"strings"

	"github.com/alecthomas/kong"
)

// roff collects the lines of a page.
type roff struct{ strings.Builder }

// line writes a line that is escaped already, apart from what it must not begin with.
func (r *roff) line(s string) {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, `\(aq`) {
		s = `\&` + s
	}
	r.WriteString(s + "\n")
}

// macro writes a request with its arguments.
func (r *roff) macro(name string, args ...string) {
	r.WriteString("." + name)
	for _, a := range args {
		r.WriteString(` "` + escaped(a) + `"`)
	}
	r.WriteString("\n")
}

func (r *roff) section(title string) { r.macro("SH", title) }

// text writes plain text, which man(1) fills. What is indented by a tab stays as it is.
func (r *roff) text(s string) {
	example := false
	for line := range strings.SplitSeq(s, "\n") {
		code, indented := strings.CutPrefix(line, "\t")
		switch {
		case strings.TrimSpace(line) == "":
			continue // an empty line would be one on the page
		case indented && !example:
			r.macro("RS")
			r.macro("nf")
		case !indented && example:
			r.macro("fi")
			r.macro("RE")
		}
		if example = indented; example {
			r.line(escaped(code))
		} else {
			r.line(escaped(strings.TrimLeft(line, " ")))
		}
	}
	if example {
		r.macro("fi")
		r.macro("RE")
	}
}

func (r *roff) paragraph(s string) {
	r.macro("PP")
	r.text(s)
}

// entry writes one entry of a list; its name is escaped already.
func (r *roff) entry(name, text string) {
	r.macro("TP")
	r.line(name)
	r.text(text)
}

func (r *roff) flags(title string, flags []*kong.Flag) {
	if len(flags) == 0 {
		return
	}
	r.section(title)
	for _, f := range flags {
		r.entry(flagName(f), kong.DefaultHelpValueFormatter(f.Value))
	}
}

// flagName is how --help names a flag, in bold, and its value in italics.
func flagName(f *kong.Flag) string {
	name := "--" + f.Name
	if f.IsBool() && f.Tag.Negatable != "" {
		name = "--[no-]" + f.Name
	}
	name = `\fB` + escaped(name) + `\fR`
	if f.Short != 0 {
		name = `\fB` + escaped("-"+string(f.Short)) + `\fR, ` + name
	}
	if !f.IsBool() && !f.IsCounter() {
		name += `=\fI` + escaped(f.FormatPlaceHolder()) + `\fR`
	}
	return name
}

// escaped makes text safe. A bare hyphen may come out as a dash, and a quote as a curved one, which
// is of no use to somebody who copies a command line.
var escaped = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`, "\t", "    ").Replace
