package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// find returns the names of test functions below a directory that begin with
// one string and contain another, by package directory as go wants it.
func find(top, prefix, part string) (map[string][]string, error) {
	found := make(map[string][]string)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			// These are the directories that go itself leaves out of ./...
			if path != top && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, prefix) && strings.Contains(function.Name.Name, part) {
				dir := "./" + filepath.Dir(path)
				found[dir] = append(found[dir], function.Name.Name)
			}
		}
		return nil
	})
	return found, err
}

func directories(found map[string][]string) []string { return slices.Sorted(maps.Keys(found)) }
