package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"exnet/directsockets/settings"
	"exnet/internal/manpage"
)

type helpCommand struct {
	Man     string   `hidden:"" placeholder:"DIR" help:"Write the manual pages into this directory."`
	Command []string `arg:"" optional:"" help:"The command to explain; or the word settings, for the environment variables that programs under exn-tun run read."`
}

// settingsTopic is what help explains besides commands.
const settingsTopic = "settings"

// Run implements the command.
func (h *helpCommand) Run(parser *kong.Kong, out output) error {
	if h.Man != "" {
		_, err := manpage.Write(h.Man, parser.Model, environment())
		return err
	}
	if len(h.Command) == 1 && h.Command[0] == settingsTopic {
		return explainSettings(out)
	}
	_, err := parser.Parse(append(h.Command, "--help"))
	return err
}

// settingsIntro stands before the settings.
const settingsIntro = `Settings are environment variables. exn-tun run refuses a wrong value, and any other variable whose name begins with EXN_DS. ` +
	`A policy file sets some of them for chosen programs (exn-tun policy).`

// explainSettings prints the table of the settings.
func explainSettings(w io.Writer) error {
	_, err := fmt.Fprint(w, wrapped(settingsIntro, ""))
	for _, s := range settings.All {
		if s.Test || err != nil {
			continue
		}
		_, err = fmt.Fprintf(w, "\n%s\n%s", s.Name, wrapped(s.Meaning, "    "))
		if line := valuesOf(s); line != "" && err == nil {
			_, err = fmt.Fprint(w, wrapped(line, "    "))
		}
	}
	return err
}

// environment is the same table for the manual page of run.
func environment() manpage.Section {
	s := manpage.Section{Command: "run", Title: "ENVIRONMENT", Intro: settingsIntro}
	for _, one := range settings.All {
		if !one.Test {
			s.Entries = append(s.Entries, manpage.Entry{Name: one.Name, Text: strings.TrimSpace(one.Meaning + "\n" + valuesOf(one))})
		}
	}
	return s
}

// valuesOf says what may be written, what holds otherwise, and which programs read it.
func valuesOf(s settings.Setting) string {
	line := s.Values()
	if s.Default != "" {
		line = joined(line, "default "+s.Default)
	}
	if s.GoDefault != "" {
		line += ", in Go programs " + s.GoDefault
	}
	switch {
	case s.Readers&settings.C == 0 && s.Readers&settings.Launcher != 0:
		line = joined(line, "read by exn-tun")
	case s.Readers&settings.Go == 0:
		line = joined(line, "not for Go programs")
	}
	return line
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
