package repo

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// lineMost is how long lines of Markdown and of comments may be, with a tab as four.
const lineMost = 100

// longLines are the documents, and the directories of sources, that were written before the
// rule. Whoever rewrites one takes it off the list; nothing is added.
var longLines = []string{
	"docs/protocols/ext-ds.md",
	"cmd/dsbench", "cmd/dsbench/comparison", "cmd/dsbench/measure", "cmd/dsbench/page", "cmd/dsbench/path", "cmd/dsbench/report",
	"cmd/dsbench/workload", "cmd/exn-tun",
	"directsockets/preload", "directsockets/preload/pump", "internal/debroot",
	"test/ds", "test/ds/apps", "test/ds/ccode", "test/ds/gopeer", "test/ds/hostile", "test/ds/lane/record", "test/ds/script",
	"test/ds/stream", "test/memmodel", "test/memmodel/channel",
}

// lineLength wants lines of documents and of comments that a terminal shows whole. Tables,
// links and what is to be copied cannot be wrapped.
func lineLength(files tree) (complaints []string) {
	for name, text := range files {
		var prose func(string) []int
		switch path.Ext(name) {
		case ".md":
			prose = proseLines
		case ".go", ".c", ".h":
			prose = commentLines
		default:
			continue
		}
		if slices.Contains(longLines, name) || slices.Contains(longLines, path.Dir(name)) {
			continue
		}
		lines := strings.Split(text, "\n")
		for _, i := range prose(text) {
			if n := utf8.RuneCountInString(strings.ReplaceAll(lines[i], "\t", "    ")); n > lineMost {
				complaints = append(complaints, fmt.Sprintf("%s:%d: a line of %d characters, at most %d", name, i+1, n, lineMost))
			}
		}
	}
	return complaints
}

// proseLines are the indexes of the lines of a document that can be wrapped: none of a table,
// of a block of code, or with a link.
func proseLines(text string) (at []int) {
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "    ") && !strings.Contains(line, "](") && !strings.Contains(line, "://") {
			at = append(at, i)
		}
	}
	return at
}

// commentLines are the indexes of the lines that are a comment and nothing else, but for
// those that tell the compiler something and those with an address.
func commentLines(text string) (at []int) {
	inside := false
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		inside = inside || strings.HasPrefix(trimmed, "/*")
		if (inside || strings.HasPrefix(trimmed, "//")) && !strings.HasPrefix(trimmed, "//go:") && !strings.Contains(line, "://") {
			at = append(at, i)
		}
		inside = inside && !strings.Contains(trimmed, "*/")
	}
	return at
}

// A budget is how many words some documents may have together, code not counted; 0 is as many
// as they need.
type budget struct {
	documents []string // patterns of path.Match
	words     int
	each      bool // the words are of each document, not of all together
}

// budgets are those of all documents. A document without a reader has no budget.
var budgets = []budget{
	{[]string{"README.md"}, 700, true},
	{[]string{"CONTRIBUTING.md", "SECURITY.md"}, 800, true},
	{[]string{"CHANGELOG.md"}, 0, true},
	{[]string{"docs/operations.md", "docs/options.md", "docs/troubleshooting.md"}, 3000, false},
	{[]string{"docs/architecture.md"}, 2500, true},
	{[]string{"docs/performance.md"}, 1000, true},
	{[]string{"docs/spec.md"}, 0, true},
	{[]string{"bench/results/README.md"}, 300, true},
	{[]string{"docs/protocols/ext-ds.md"}, 6500, true}, // 3500 once its tables are generated
	{[]string{"docs/protocols/*.md"}, 3500, true},
	{[]string{"docs/decisions/README.md"}, 600, true},
	{[]string{"docs/decisions/0201-lane-format-3.md"}, 600, true}, // many changes at once, by design
	{[]string{"docs/decisions/[0-9][0-9][0-9][0-9]-*.md"}, 420, true},
}

func (b budget) covers(name string) bool {
	return slices.ContainsFunc(b.documents, func(pattern string) bool {
		match, _ := path.Match(pattern, name)
		return match
	})
}

// wordBudget keeps documents as short as their readers' time.
func wordBudget(files tree) (complaints []string) {
	for name, text := range files {
		if path.Ext(name) != ".md" || strings.Contains(name, "/testdata/") {
			continue
		}
		i := slices.IndexFunc(budgets, func(b budget) bool { return b.covers(name) })
		if i < 0 {
			complaints = append(complaints, name+": no budget: say in budgets for whom it is, or put it into another document")
			continue
		}
		b, n, of := budgets[i], words(text), ""
		if !b.each {
			n, of = 0, " with "+strings.Join(b.documents, ", ")
			for _, other := range b.documents {
				n += words(files[other])
			}
		}
		if b.words > 0 && n > b.words {
			complaints = append(complaints, fmt.Sprintf("%s: %d words%s, at most %d", name, n, of, b.words))
		}
	}
	return complaints
}

// words counts what a reader reads: what has a letter or digit, outside of blocks of code.
func words(text string) (n int) {
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			continue
		}
		for _, word := range strings.Fields(line) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				n++
			}
		}
	}
	return n
}

var (
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	sourceName = regexp.MustCompile(`^[\w./@-]+\.(go|c|h|md|sh|service)$`)
	sourceDir  = regexp.MustCompile(`^(arp|cmd|directsockets|docs|exn|exteth|fabric|internal|mtu|multicast|napi|test)(/[\w.@-]+)+$`)
	anchorLink = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// documentNames wants files and directories that documents name to exist, by any end of their
// path, and links to headings to find them.
func documentNames(files tree) (complaints []string) {
	ends := make(map[string]bool)
	for name := range files {
		for dir := name; dir != "."; dir = path.Dir(dir) {
			for end := dir; ; {
				ends[end] = true
				_, rest, found := strings.Cut(end, "/")
				if !found {
					break
				}
				end = rest
			}
		}
	}
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, match := range quoted.FindAllStringSubmatch(text, -1) {
			if named := match[1]; (sourceName.MatchString(named) || sourceDir.MatchString(named)) && !ends[strings.TrimPrefix(named, "./")] {
				complaints = append(complaints, fmt.Sprintf("%s: no file or directory %s", name, named))
			}
		}
		for _, match := range anchorLink.FindAllStringSubmatch(text, -1) {
			target := name
			if match[1] != "" {
				target = path.Join(path.Dir(name), match[1])
			}
			if strings.Contains(match[1], ":") || path.Ext(target) != ".md" {
				continue
			}
			if !slices.Contains(anchors(files[target]), match[2]) {
				complaints = append(complaints, fmt.Sprintf("%s: %s has no heading #%s", name, target, match[2]))
			}
		}
	}
	return complaints
}

// anchors are the names by which headings of a document are linked to.
func anchors(text string) (all []string) {
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, match[1]))
	}
	return all
}

const specification = "docs/spec.md"

var (
	requirement = regexp.MustCompile(`\b[A-Z]{3}-[0-9]+\b`)
	defined     = regexp.MustCompile(`(?m)^- \*\*([A-Z]{3}-[0-9]+)\*\* `)
	// otherNames look like requirements and are none.
	otherNames = []string{"EUI-64", "SSH-2", "UTF-8", "UTF-16"}
)

// requirements wants each number of a requirement that sources and documents name to be
// defined, once.
func requirements(files tree) (complaints []string) {
	known := make(map[string]bool)
	for _, match := range defined.FindAllStringSubmatch(files[specification], -1) {
		if known[match[1]] {
			complaints = append(complaints, specification+": defines "+match[1]+" twice")
		}
		known[match[1]] = true
	}
	for name, text := range files {
		if !slices.Contains([]string{".go", ".c", ".h", ".sh", ".md"}, path.Ext(name)) {
			continue
		}
		missing := make(map[string]bool)
		for _, id := range requirement.FindAllString(text, -1) {
			missing[id] = !known[id] && !slices.Contains(otherNames, id)
		}
		for _, id := range slices.Sorted(maps.Keys(missing)) {
			if missing[id] {
				complaints = append(complaints, fmt.Sprintf("%s: %s is not defined in %s", name, id, specification))
			}
		}
	}
	return complaints
}

// TestWords has what is a word and what is not.
func TestWords(t *testing.T) {
	for text, want := range map[string]int{
		"":                         0,
		"# Two words\n":            2,
		"| a | – | b c |\n":        3,
		"a\n```\nb c\n```\nd\n":    2,
		"a\n\n    code is none\n":  1,
		"`exn-tun run` and 3 …, —": 4,
	} {
		if got := words(text); got != want {
			t.Errorf("%q has %d words, want %d", text, got, want)
		}
	}
}
