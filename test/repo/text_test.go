package repo

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// topNames are the entries of the top level, topCommands those of cmd. They are
// the map a newcomer reads first: adding one is a decision.
var (
	topNames = []string{
		".ci", ".editorconfig", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md",
		"go.mod", "go.sum", "staticcheck.conf",
		"arp", "bench", "cmd", "directsockets", "docs", "exn", "exteth", "fabric", "internal", "mtu", "multicast", "napi", "test",
	}
	topCommands = []string{"dsbench", "exn-tun"}
)

func topLevel(files tree) (complaints []string) {
	for name := range files {
		parts := strings.Split(name, "/")
		if !slices.Contains(topNames, parts[0]) {
			complaints = append(complaints, name+": the top level has no "+parts[0])
		} else if parts[0] == "cmd" && !slices.Contains(topCommands, parts[1]) {
			complaints = append(complaints, name+": there is no command "+parts[1])
		}
	}
	return complaints
}

// maxLines is what a reader can hold in mind, with some slack: files of 100 to
// 500 lines are the aim.
const maxLines = 600

// foreign is where headers of others lie as they came.
const foreign = "fabric/ofi/libfabric/include/"

// fileLength is about what people write to be run; documents may be longer.
func fileLength(files tree) (complaints []string) {
	for name, text := range files {
		source := slices.Contains([]string{".go", ".c", ".h", ".sh"}, path.Ext(name)) && !strings.HasPrefix(name, foreign)
		if n := strings.Count(text, "\n"); source && n > maxLines {
			complaints = append(complaints, fmt.Sprintf("%s: %d lines, at most %d; split it by its nouns", name, n, maxLines))
		}
	}
	return complaints
}

// matches complains of each line that matches.
func (files tree) matches(pattern *regexp.Regexp, complaint string) (complaints []string) {
	for name, text := range files {
		number := 0
		for line := range strings.Lines(text) {
			number++
			if found := pattern.FindString(line); found != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %s: %q", name, number, complaint, found))
			}
		}
	}
	return complaints
}

// The patterns are put together so that they do not match themselves.
var (
	unfinished  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machinePath = `(^|[^\w.~$}/-])/(home|root|Users|work)/`
	space       = regexp.MustCompile(`[ \t\r]+\n$`)
	link        = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
)

// unfinishedMarks wants work to be finished, or described where others see it.
func unfinishedMarks(files tree) []string {
	return files.matches(unfinished, "unfinished")
}

// machinePaths wants nothing to depend on where somebody keeps files.
func machinePaths(files tree) []string {
	pattern := machinePath
	for _, dir := range []string{checkout(), os.Getenv("HOME")} {
		if strings.Count(dir, "/") > 1 { // a home such as / says nothing
			pattern += "|" + regexp.QuoteMeta(dir) + `\b`
		}
	}
	return files.matches(regexp.MustCompile(pattern), "a path of somebody's machine")
}

func checkout() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		return ""
	}
	return dir
}

// whitespace keeps .editorconfig for those whose editor does not.
func whitespace(files tree) []string {
	complaints := files.matches(space, "space at the end of a line")
	for name, text := range files {
		switch {
		case text == "":
		case !strings.HasSuffix(text, "\n"):
			complaints = append(complaints, name+": the last line does not end")
		case strings.HasSuffix(text, "\n\n"):
			complaints = append(complaints, name+": ends with an empty line")
		}
	}
	return complaints
}

// documentLinks wants links between documents to lead somewhere.
func documentLinks(files tree) (complaints []string) {
	known := make(map[string]bool)
	for name := range files {
		for ; name != "."; name = path.Dir(name) {
			known[name] = true
		}
	}
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if target := match[1]; !strings.Contains(target, ":") && !known[path.Join(path.Dir(name), target)] {
				complaints = append(complaints, fmt.Sprintf("%s: nothing at %s", name, target))
			}
		}
	}
	return complaints
}
