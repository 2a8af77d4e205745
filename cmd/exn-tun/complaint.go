package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"exnet/arp"
)

// complain writes an error as one line for the user: without the words that only tell programs
// which class it is of, without the names of packages, and in plain words where the parser's are
// not. The packages keep them, for an error may end up in the log of another program.
func complain(err error) string {
	text := err.Error()
	for again := true; again; {
		again = false
		for _, class := range classes() {
			before := text
			text = strings.TrimSuffix(text, ": "+class)
			text = strings.TrimPrefix(text, class+": ")
			again = again || text != before
		}
		if first, rest, found := strings.Cut(text, ": "); found && internalNames[first] {
			text, again = rest, true
		}
	}
	for _, p := range parserWords {
		text = p.found.ReplaceAllString(text, p.plain)
	}
	return text
}

// classes are the texts of errors that stand for a class, each of which has an exit code.
func classes() (all []string) {
	for _, e := range exitCodes {
		all = append(all, e.err.Error())
	}
	return append(all, arp.ErrPrefix.Error())
}

// internalNames are what errors begin with to tell programs where they come from: packages, and
// commands, which the user has just typed.
var internalNames = map[string]bool{"arp": true, "attach": true, "capture": true, "check": true, "control": true, "demo": true, "device": true,
	"exn": true, "exteth": true, "metrics": true, "policy": true, "up": true}

// parserWords are what the parser says of arguments.
var parserWords = []struct {
	found *regexp.Regexp
	plain string
}{
	{regexp.MustCompile(`expected a valid \d+ bit u?int but got (".*")`), "$1 is not a valid number"},
	{regexp.MustCompile(`expected duration but got (".*"): time: .*`), "$1 is not a duration, such as 50us or 1s"},
	{regexp.MustCompile(`expected \w+ value but got "(-[^"]*)" \(short flag\); .*`), "$1 cannot be negative"},
	{regexp.MustCompile(`expected \w+ value but got "EOL" \(<EOL>\)`), "needs a value"},
	{regexp.MustCompile(`^expected one of "up", .*`), "no command is named"},
	{regexp.MustCompile(`^expected "<command> \.\.\."`), "no program to run: exn-tun run -- CMD ARGS"},
	{regexp.MustCompile(`^expected "<host:port>"`), "no address to check: exn-tun check HOST:PORT"},
	{regexp.MustCompile(`^unexpected argument (.*)`), "unknown command or argument: $1"},
}

// advice says where the command is explained that was used wrongly.
func advice(err *kong.ParseError) string {
	if err.Context != nil {
		if node := err.Context.Selected(); node != nil {
			return "exn-tun help " + strings.TrimPrefix(node.Path(), "exn-tun ") + " explains it."
		}
	}
	return "exn-tun help lists the commands."
}

// unwritten adds the remedy to an error of writing what the user asked for.
func unwritten(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w; free some space there, or write to another place", err)
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; name a file in a directory that you can write to", err)
	}
	return err
}

// errUsage is wrapped by errors about arguments that only Run can judge.
var errUsage = errors.New("wrong usage")
