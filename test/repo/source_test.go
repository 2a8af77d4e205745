package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sources parses the Go files for which want holds. It is a complaint of its
// own when one does not parse.
func (files tree) sources(mode parser.Mode, want func(name string) bool) (parsed map[string]*ast.File, complaints []string) {
	parsed = make(map[string]*ast.File)
	for name, text := range files {
		if path.Ext(name) != ".go" || text == "" || !want(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, mode)
		if err != nil {
			complaints = append(complaints, err.Error())
			continue
		}
		parsed[name] = file
	}
	return parsed, complaints
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

func isProduct(name string) bool { return !isTest(name) }

// packageComments wants each package to say in one place what it is. The tests
// of a package do not count, unless it has nothing else.
func packageComments(files tree) []string {
	parsed, complaints := files.sources(parser.ParseComments|parser.PackageClauseOnly, func(string) bool { return true })
	type count struct{ files, comments int }
	product, tests := make(map[string]count), make(map[string]count)
	for name, file := range parsed {
		counts := product
		if isTest(name) {
			counts = tests
		}
		c := counts[path.Dir(name)]
		c.files++
		if file.Doc != nil {
			c.comments++
		}
		counts[path.Dir(name)] = c
	}
	for dir, c := range tests {
		if _, found := product[dir]; !found {
			product[dir] = c
		}
	}
	for dir, c := range product {
		if c.comments != 1 {
			complaints = append(complaints, fmt.Sprintf("%s: %d package comments in %d files, want one", dir, c.comments, c.files))
		}
	}
	return complaints
}

// plainMethods need no comment: their interface says all.
var plainMethods = []string{"Error", "String", "Unwrap"}

// exportedComments wants a comment on all that a package exports. Constants and
// variables may share one. (staticcheck only looks at how a comment begins.)
func exportedComments(files tree) []string {
	parsed, complaints := files.sources(parser.ParseComments, isProduct)
	for name, file := range parsed {
		if file.Name.Name == "main" {
			continue
		}
		for _, decl := range file.Decls {
			for _, bare := range uncommented(decl) {
				complaints = append(complaints, fmt.Sprintf("%s: no comment on %s", name, bare))
			}
		}
	}
	return complaints
}

// uncommented returns what a declaration exports without a comment.
func uncommented(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		method := d.Recv != nil
		if d.Doc == nil && d.Name.IsExported() && (!method || ast.IsExported(receiver(d)) && !slices.Contains(plainMethods, d.Name.Name)) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if d.Doc == nil && s.Doc == nil && s.Comment == nil {
					for _, id := range s.Names {
						if id.IsExported() {
							names = append(names, id.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// receiver returns the name of the type a method belongs to.
func receiver(method *ast.FuncDecl) string {
	name := ""
	ast.Inspect(method.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// borders are the arrows that docs/architecture.md does not have. The packages at or
// below one of from import nothing at or below one of not, except what is at or
// below one of but.
var borders = []struct {
	from, not, but []string
	why            string
}{
	{[]string{"fabric"}, []string{"exnet"}, []string{"exnet/fabric", "exnet/internal/late"}, "the fabric knows neither Ethernet nor sockets"},
	{[]string{"fabric/shm"}, []string{"exnet/fabric/emu", "exnet/fabric/ofi"}, nil, "one backend knows nothing of another"},
	{[]string{"fabric/emu"}, []string{"exnet/fabric/shm", "exnet/fabric/ofi"}, nil, "one backend knows nothing of another"},
	{[]string{"fabric/ofi"}, []string{"exnet/fabric/shm", "exnet/fabric/emu"}, nil, "one backend knows nothing of another"},
	{[]string{"napi"}, []string{"exnet"}, []string{"exnet/napi", "exnet/internal/late"}, "the engine does not know what it polls"},
	{[]string{"mtu", "arp", "multicast"}, []string{"os", "syscall", "golang.org/x/sys/unix"}, nil, "it computes and does no I/O"},
	{[]string{"exteth"}, []string{"exnet/exn", "golang.zx2c4.com/wireguard", "github.com/songgao/water"}, nil, "EXT-Eth does not know TUN"},
	{[]string{"fabric", "napi", "mtu", "arp", "multicast", "exteth", "exn", "directsockets", "internal", "cmd"}, []string{"exnet/test"}, nil, "the product does not need its tests"},
	{[]string{"fabric", "napi", "mtu", "arp", "multicast", "exteth", "exn", "directsockets", "internal", "test"}, []string{"exnet/cmd"}, nil, "commands hold nothing worth importing"},
}

func imports(files tree) []string {
	parsed, complaints := files.sources(parser.ImportsOnly, isProduct)
	for name, file := range parsed {
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				complaints = append(complaints, fmt.Sprintf("%s: %v", name, err))
			}
			for _, b := range borders {
				if within(path.Dir(name), b.from) && within(imported, b.not) && !within(imported, b.but) {
					complaints = append(complaints, fmt.Sprintf("%s: imports %s, but %s", name, imported, b.why))
				}
			}
		}
	}
	return complaints
}

// within says whether a path is one of roots or below it.
func within(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return name == root || strings.HasPrefix(name, root+"/") })
}
