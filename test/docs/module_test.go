package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goBlock marks the two blocks about a Go program: the command that finds the module, and the
// lines that use it.
const goBlock = "go"

// A module of its own finds the package as the README says, and compiles what that shows.
func TestModule(t *testing.T) {
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var command, lines string
	for _, b := range readBlocks(t) {
		switch {
		case b.mark != "run: "+goBlock:
		case b.language == "go":
			lines += b.code
		default:
			command += b.code
		}
	}
	if command == "" || lines == "" {
		t.Fatalf("the documents show the command %q and the lines %q", command, lines)
	}
	dir := t.TempDir()
	program := "package main\n\nimport \"exnet/directsockets\"\n\nfunc main() {\n" + lines + "_, _, _ = c, l, err\n}\n"
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const place = "/PATH/TO/exnet"
	if !strings.Contains(command, place) {
		t.Fatalf("%q does not name %s", command, place)
	}
	command = strings.ReplaceAll(command, place, checkout)
	// All that is needed is in the cache of modules, for this test has been built with it.
	command += "go get exnet/directsockets && go build -o example\n"
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
}
