package script_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"exnet/test/ds"
)

// What the library takes over under one name it takes over under the other, too, that glibc
// has for it: of a connection on its lane __read would wait for TCP. Names that programs
// cannot link with (GLIBC_PRIVATE) do not matter.
func TestOtherNames(t *testing.T) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	libc, err := exec.Command(cc, "-print-file-name=libc.so.6").Output()
	if err != nil {
		t.Fatal(err)
	}
	symbols := func(path string) map[string]bool {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		defined := make(map[string]bool)
		for _, s := range all {
			if s.Section != elf.SHN_UNDEF && s.Version != "GLIBC_PRIVATE" {
				defined[s.Name] = true
			}
		}
		return defined
	}
	ours, theirs := symbols(ds.Library(t)), symbols(strings.TrimSpace(string(libc)))
	n := 0
	for name := range ours {
		if other := "__" + name; theirs[other] {
			n++
			if !ours[other] {
				t.Errorf("%s is not ours", other)
			}
		}
	}
	if n == 0 {
		t.Error("no function has another name")
	}
}

// What it looks up itself is what the loader would find, also where another library is preloaded.
func TestFindsWhatIsNext(t *testing.T) {
	program := ds.Build(t, "next", []string{"-I", ds.Headers()}, "next.c", ds.Object(t))
	other := ds.Build(t, "broken.so", []string{"-shared", "-fPIC"}, "broken.c")
	for _, preload := range []string{"", other} {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload)
		text, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(`^[0-9]{2,3} functions\n$`).Match(text) {
			t.Errorf("before %q: %v\n%s", preload, err, text)
		}
	}
}
