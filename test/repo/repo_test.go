// Package repo checks the rules that the whole repository keeps and that no
// compiler or linter knows: one package comment per package, short files, who
// may import whom, no unfinished marks, no paths of somebody's machine.
//
// Each rule is a [guard], and each is tried on trees that break it.
package repo

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// guards are all rules, by the name of their test.
var guards = map[string]guard{
	"TopLevel":         topLevel,
	"PackageComments":  packageComments,
	"ExportedComments": exportedComments,
	"Imports":          imports,
	"FileLength":       fileLength,
	"UnfinishedMarks":  unfinishedMarks,
	"MachinePaths":     machinePaths,
	"Whitespace":       whitespace,
	"DocumentLinks":    documentLinks,
	"DocumentNames":    documentNames,
	"LineLength":       lineLength,
	"WordBudget":       wordBudget,
	"Requirements":     requirements,
}

// A guard returns what breaks its rule, one line each, as place and complaint.
type guard func(tree) []string

// tree is the files of a repository by path, without those git ignores. Those
// that are not text or lie in a testdata directory are there, but empty: they
// may break every rule.
type tree map[string]string

func TestGuards(t *testing.T) {
	files := readTree(t, os.DirFS("../.."))
	for _, name := range []string{"go.mod", "test/repo/repo_test.go"} {
		if files[name] == "" {
			t.Fatalf("%s is not among the %d files read", name, len(files))
		}
	}
	for name, check := range guards {
		t.Run(name, func(t *testing.T) {
			for _, complaint := range check(files) {
				t.Error(complaint)
			}
		})
	}
}

func readTree(t *testing.T, fsys fs.FS) tree {
	t.Helper()
	files := make(tree)
	ignore, err := fs.ReadFile(fsys, ".gitignore")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".git", ignored(string(ignore), name, entry.IsDir()):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if strings.Contains("/"+name, "/testdata/") || bytes.Contains(text, []byte{0}) {
			text = nil
		}
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ignored knows the two forms of pattern that our .gitignore has: a directory
// of the top level (/bin/), and the names of files (*.prof).
func ignored(patterns, name string, isDir bool) bool {
	for pattern := range strings.Lines(patterns) {
		pattern = strings.TrimSpace(pattern)
		if dir, found := strings.CutSuffix(pattern, "/"); found {
			if isDir && "/"+name == dir {
				return true
			}
		} else if match, _ := path.Match(pattern, path.Base(name)); match {
			return true
		}
	}
	return false
}

func TestReadTree(t *testing.T) {
	got := readTree(t, fstest.MapFS{
		".gitignore":           {Data: []byte("/bin/\n*.prof\n")},
		".git/config":          {Data: []byte("git's own")},
		"bin/program":          {Data: []byte("ignored directory")},
		"cmd/bin/main.go":      {Data: []byte("only /bin is ignored")},
		"napi/cpu.prof":        {Data: []byte("ignored name")},
		"napi/testdata/bad.go": {Data: []byte("not ours to judge")},
		"napi/logo.png":        {Data: []byte("\x89PNG\x00")},
	})
	want := tree{
		".gitignore": "/bin/\n*.prof\n", "cmd/bin/main.go": "only /bin is ignored", "napi/testdata/bad.go": "", "napi/logo.png": "",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestGuardsBark gives each guard a tree. What is called bad breaks its rule,
// the rest does not.
func TestGuardsBark(t *testing.T) {
	long := strings.Repeat("\n", maxLines+1)
	wide := strings.Repeat("x", lineMost+1)
	for name, files := range map[string]tree{
		"TopLevel": {
			"README.md": "", "napi/util.go": "", "cmd/dsbench/main.go": "",
			"bad.md": "", "bad/x.go": "", "cmd/bad/main.go": "",
		},
		"PackageComments": {
			"one/a.go":        "// Package one is.\npackage one",
			"one/b.go":        "package one",
			"one/a_test.go":   "// Package one tests.\npackage one",
			"tests/a_test.go": "// Package tests is.\npackage tests",
			"bad/a.go":        "package bad",
			"bad/a_test.go":   "// Package bad tests.\npackage bad",
			"bad2/a.go":       "// Package bad2 is.\npackage bad2",
			"bad2/b.go":       "// Package bad2 is.\npackage bad2",
			"bad3/a_test.go":  "package bad3",
		},
		"ExportedComments": {
			"good.go": "package a\n// A is.\ntype A int\n// Do does.\nfunc (A) Do() {}\nfunc (A) String() string { return \"\" }\n" +
				"// These are.\nconst (\n\tB = 1\n\tC = 2\n)\nvar D = 1 // D is.\nfunc e() {}\ntype f int\nfunc (f) G() {}\n",
			"good_test.go": "package a\nfunc TestX() {}\n",
			"main.go":      "package main\ntype Z int\n",
			"bad1.go":      "package a\nfunc Do() {}\n",
			"bad2.go":      "package a\n// A is.\ntype A int\nfunc (*A) Do() {}\n",
			"bad3.go":      "package a\nconst B = 1\n",
			"bad4.go":      "package a\n// These are.\ntype (\n\tA int\n)\n",
			"bad5.go":      "package a\n// G is.\ntype G[T any] struct{}\nfunc (G[T]) Do() {}\n",
		},
		"Imports": {
			"fabric/shm/a.go":      `package shm; import "exnet/fabric"`,
			"fabric/shm/a_test.go": `package shm; import "exnet/test/leak"`,
			"test/redis/redis.go":  `package redis; import "exnet/test/leak"`,
			"fabric/bad.go":        `package fabric; import "exnet/exteth"`,
			"fabric/shm/bad.go":    `package shm; import "exnet/fabric/emu"`,
			"fabric/emu/bad.go":    `package emu; import "exnet/fabric/shm/ring"`,
			"napi/bad.go":          `package napi; import "exnet/fabric"`,
			"mtu/bad.go":           `package mtu; import "os"`,
			"exn/bad.go":           `package exn; import "exnet/test/netns"`,
			"exteth/bad.go":        `package exteth; import "golang.zx2c4.com/wireguard/tun"`,
		},
		"FileLength": {
			"good.go": long[1:], "good.md": long, foreign + "good.h": long, "bad.go": long, "bad.c": long, "bad.sh": long,
		},
		"UnfinishedMarks": {
			"good.go": "mktemp XX" + "XXXX, not" + "TO" + "DO", "bad1.go": "// TO" + "DO: more", "bad2.md": "FIX" + "ME", "bad3.c": "/* XX" + "X */",
		},
		"MachinePaths": {
			"good.md": "~/src, https://example.org/" + "home/x, /tmp/x, $HOME/x, /rootless",
			"bad1.md": "see /" + "home/me/x", "bad2.go": `"/` + `root/x"`, "bad3.sh": "cd=/" + "work/x",
		},
		"Whitespace": {
			"good.go": "package a\n", "empty.go": "", "bad1.go": "package a", "bad2.go": "package a \n", "bad3.md": "a\r\n", "bad4.md": "a\n\n",
		},
		"DocumentLinks": {
			"README.md": "[a](napi/napi.go) [b](docs/x.md#part) [c](https://example.org) [d](#here) [e](napi)",
			"docs/x.md": "[up](../README.md)", "napi/napi.go": "",
			"bad.md": "[gone](napi/gone.go)", "docs/bad.md": "[not from here](napi/napi.go)",
		},
		"DocumentNames": {
			"docs/good.md":  "# A `b` heading\n`napi.go` `napi/napi.go` `./napi/napi.go` `test/ds` `FILE.toml` `go test ./x.go` [a](#a-b-heading) [b](other.md#it-is)",
			"docs/other.md": "## It is!\n", "napi/napi.go": "", "test/ds/a.go": "",
			"bad1.md": "`napi/gone.go`", "bad2.md": "`test/gone`", "bad3.md": "[a](docs/other.md#it-was)", "bad4.md": "# B\n[a](#a)",
		},
		"LineLength": {
			"good.md":               "| " + wide + " |\n```\n" + wide + "\n```\n    " + wide + "\n[a](b) " + wide + "\n" + wide[1:] + "\n",
			"mtu/a.go":              "//go:embed " + wide + "\n// https://example.org/" + wide + "\nvar a = `" + wide + "`\n",
			"internal/debroot/a.go": "// " + wide,
			"bad1.md":               wide, "mtu/bad2.go": "func a() {\n\t// " + wide[:95] + "\n}\n", "mtu/bad3.c": "/* a\n" + wide + "\n*/\n", "mtu/bad4.h": "// " + wide,
		},
		"WordBudget": {
			"README.md": strings.Repeat("word ", 700), "docs/spec.md": strings.Repeat("word ", 9999), "docs/decisions/0001-a.md": "word",
			"docs/protocols/bad.md": strings.Repeat("word ", 3501), "docs/decisions/0002-bad.md": strings.Repeat("word ", 421), "docs/bad.md": "for nobody",
		},
		"Requirements": {
			"docs/spec.md": "- **NAP-1** T A rule.\n", "good.go": "// NAP-1, as UTF-8\n", "bad1.go": "// NAP-" + "9\n", "bad2.md": "ABC-" + "1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			accused := make(map[string]bool)
			for _, complaint := range guards[name](files) {
				place, _, _ := strings.Cut(complaint, ":")
				accused[place] = true
				if !strings.Contains(place, "bad") {
					t.Errorf("unjust: %s", complaint)
				}
			}
			for file := range files {
				if strings.Contains(file, "bad") && !accused[file] && !accused[path.Dir(file)] {
					t.Errorf("no complaint about %s", file)
				}
			}
		})
	}
}
