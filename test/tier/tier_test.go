package tier

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each row names a test that exists, or it leaves out nothing and nobody notices.
func TestRowsNameTests(t *testing.T) {
	found := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range Rows {
		if !found[name] {
			t.Errorf("tiers.txt lists %s, which is no test", name)
		}
	}
	if len(Rows) == 0 || len(found) < len(Rows) {
		t.Errorf("%d rows, %d tests", len(Rows), len(found))
	}
}

func TestParse(t *testing.T) {
	rows, err := parse("# only words\n\nTestA scripts 1/4 1 # why\nTestB programs 0 1/3\n")
	if err != nil || len(rows) != 2 || rows["TestA"] != (Row{"TestA", "scripts", 0.25, 1}) || rows["TestB"].CI != Share(1.0/3) || rows["TestA"].Single() || !rows["TestB"].Single() {
		t.Errorf("%+v, %v", rows, err)
	}
	for text, want := range map[string]string{
		"TestA seeds 0":              "4",
		"TestA seeds 0 2":            "no share",
		"TestA seeds 3/2 1":          "no share",
		"TestA seeds 1/0 1":          "no share",
		"TestA s 0 1\nTestA s 0 1\n": ":2: TestA is listed twice",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Of many cases each tier plays its share; the second plays none of the first; and in all samples
// together everything is played.
func TestShares(t *testing.T) {
	row := Row{"TestX", "scripts", 0.1, 0.25}
	const cases, samples = 2000, 60
	quick, all := 0, make(map[string]bool)
	for i := range cases {
		name := fmt.Sprint("4-warm/ends/", i)
		if row.keeps(Quick, "any", name, false) {
			quick++
			all[name] = true
		}
		if !row.keeps(All, "any", name, false) {
			t.Fatal("make test-all leaves out", name)
		}
	}
	if quick < cases/20 || quick > cases/5 {
		t.Errorf("make test plays %d of %d", quick, cases)
	}
	for s := range samples {
		sample, n := fmt.Sprintf("%04x", s), 0
		for i := range cases {
			name := fmt.Sprint("4-warm/ends/", i)
			if row.keeps(CI, sample, name, false) {
				n++
				all[name] = true
				if row.keeps(Quick, sample, name, false) {
					t.Fatal("played twice:", name)
				}
			}
			if row.keeps(CI, sample, name, true) {
				t.Fatal("make test has it always:", name)
			}
		}
		if n < cases/10 || n > cases/3 {
			t.Errorf("sample %s plays %d of %d", sample, n, cases)
		}
	}
	if len(all) != cases {
		t.Errorf("%d samples play %d of %d", samples, len(all), cases)
	}
}
