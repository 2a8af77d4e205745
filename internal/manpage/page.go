// Package manpage writes the manual pages of a command line from the model that its --help is made
// from, so that the two cannot differ.
//
// The program has a page, and so has each of its commands: exn-tun.1, exn-tun-show.1,
// exn-tun-show-sockets.1. Hidden commands and flags have none. A paragraph of a long help text that
// begins with "Exit codes: " becomes the section EXIT STATUS.
//
// The pages use the man macros that every man(1) knows. They carry no date, so that the same source
// gives the same pages.
package manpage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// An Entry is one line of a list: what it is about, and the text.
type Entry struct{ Name, Text string }

// A Section is added to the page of a command.
type Section struct {
	Command string // its path without the program's name, "" for the program
	Title   string
	Intro   string
	Entries []Entry
}

// Write writes all pages of a program into a directory, which it makes, and returns their names.
func Write(dir string, app *kong.Application, extra ...Section) (names []string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("manual pages: %w", err)
	}
	for _, node := range Nodes(app) {
		name := Title(node) + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(page(node, extra)), 0o666); err != nil {
			return names, fmt.Errorf("manual pages: %w", err)
		}
		names = append(names, name)
	}
	return names, nil
}

// Nodes are the program and its commands, those that have a page.
func Nodes(app *kong.Application) []*kong.Node { return below(app.Node) }

func below(node *kong.Node) []*kong.Node {
	all := []*kong.Node{node}
	for _, child := range commands(node) {
		all = append(all, below(child)...)
	}
	return all
}

func commands(node *kong.Node) (all []*kong.Node) {
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			all = append(all, child)
		}
	}
	return all
}

// Title is the name of a node's page: the words of the command with hyphens between.
func Title(node *kong.Node) string { return strings.Join(path(node), "-") }

func path(node *kong.Node) []string {
	if node.Parent == nil {
		return []string{node.Name}
	}
	return append(path(node.Parent), node.Name)
}

// Flags are the flags of a node: its own, and those that it has of the commands above it.
func Flags(node *kong.Node) (own, inherited []*kong.Flag) {
	for n := node; n != nil; n = n.Parent {
		for _, flag := range n.Flags {
			switch {
			case flag.Hidden:
			case n == node:
				own = append(own, flag)
			case flag.Name != "help":
				inherited = append(inherited, flag)
			}
		}
	}
	return own, inherited
}

const exitCodes = "Exit codes: "

func page(node *kong.Node, extra []Section) string {
	r := new(roff)
	title := Title(node)
	r.macro("TH", strings.ToUpper(title), "1", "", "exnet", "exnet manual")
	r.WriteString(".nh\n.ad l\n") // names are not hyphenated, and lines not stretched
	short, more, _ := strings.Cut(node.Help, "\n\n")
	r.section("NAME")
	r.line(escaped(title) + ` \- ` + escaped(lowered(strings.TrimSuffix(short, "."))))

	r.section("SYNOPSIS")
	r.macro("B", strings.Join(path(node), " "))
	if rest := synopsis(node); rest != "" {
		r.text(rest)
	}

	var exits []string
	r.section("DESCRIPTION")
	r.text(short)
	for _, text := range []string{more, node.Detail} {
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			if codes, found := strings.CutPrefix(paragraph, exitCodes); found {
				exits = append(exits, codes)
			} else if strings.TrimSpace(paragraph) != "" {
				r.paragraph(paragraph)
			}
		}
	}

	if len(node.Positional) > 0 {
		r.section("ARGUMENTS")
		for _, argument := range node.Positional {
			r.entry(`\fI`+escaped(strings.Trim(argument.Summary(), "[]<>. "))+`\fR`, kong.DefaultHelpValueFormatter(argument))
		}
	}
	own, inherited := Flags(node)
	r.flags("OPTIONS", own)
	if len(inherited) > 0 {
		r.flags("OPTIONS OF "+strings.ToUpper(strings.Join(path(node.Parent), " ")), inherited)
	}
	if children := commands(node); len(children) > 0 {
		r.section("COMMANDS")
		for _, child := range children {
			r.entry(`\fB`+escaped(Title(child))+`\fR(1)`, child.Help)
		}
	}
	for _, s := range extra {
		if s.Command == strings.Join(path(node)[1:], " ") {
			r.section(s.Title)
			r.text(s.Intro)
			for _, e := range s.Entries {
				r.entry(`\fB`+escaped(e.Name)+`\fR`, e.Text)
			}
		}
	}
	if len(exits) > 0 {
		r.section("EXIT STATUS")
		for _, codes := range exits {
			r.paragraph(codes)
		}
	}
	if node.Parent != nil {
		r.section("SEE ALSO")
		r.line(`\fB` + escaped(Title(node.Parent)) + `\fR(1)`)
	}
	return r.String()
}

// synopsis is what may stand behind the words of a command.
func synopsis(node *kong.Node) string {
	var words []string
	for _, argument := range node.Positional {
		words = append(words, argument.Summary())
	}
	words = append([]string{"[flags]"}, words...)
	if children := commands(node); len(children) > 0 {
		if node.DefaultCmd == nil {
			words = append(words, "<command>")
		} else {
			words = append(words, "[<command>]")
		}
	}
	return strings.Join(words, " ")
}

// lowered begins a description as those of whatis(1) do, in small letters, unless its first word is
// an abbreviation or a name.
func lowered(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if len(first) < 2 || strings.ToLower(first[1:]) != first[1:] {
		return s
	}
	return strings.ToLower(first[:1]) + s[1:]
}
