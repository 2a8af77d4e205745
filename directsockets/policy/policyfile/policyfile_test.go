package policyfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExample(t *testing.T) {
	p, err := Read(write(t, Example))
	if err != nil {
		t.Fatal(err)
	}
	const want = "program redis-* EXN_DS_BYTES=16384 EXN_DS_CALLS=8 EXN_DS_LANES=1024 EXN_DS_MEMORY=1073741824 EXN_DS_SLOTS=64" +
		" EXN_DS_SPIN_US=50 EXN_DS_VELO_MAX=480 EXN_DS_WINDOW=262144 EXN_PEERS=same-user;" +
		"connection postgres in 5432-5432,6432-6439 10.0.0.0/8,fd00::/8 no;"
	if got := p.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"[[connection]]":                         "connection * any any any yes;",
		"[[program]]\nspin='0s'":                 "program * EXN_DS_SPIN_US=0;",
		"[[connection]]\nport=80\naddress='::1'": "connection * any 80-80 ::1/128 yes;",
		"[[connection]]\naddress='10.1.2.3/8'":   "connection * any any 10.0.0.0/8 yes;",
	} {
		p, err := Read(write(t, text))
		if err != nil || p.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, p, err, want)
		}
	}
}

// Every error names the line and says what to write.
func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"[[program]]\nname = 'a b'":                    ":2: name: ",
		"[[program]]\n\nspn = '1us'":                   ":3: spn: unknown key; there are bytes, calls,",
		"[[program]]\nspin = '1s'":                     ":2: spin: 1s: write a time up to 100ms",
		"[[program]]\nspin = 50":                       ":2: spin: 50: write a time",
		"[[program]]\nwindow = '20KiB'":                ":2: window: 20480: write a power of two",
		"[[program]]\nwindow = '1KiB'":                 ":2: window: 1024: write a number from 16384",
		"[[program]]\nbytes = 'many'":                  ":2: bytes: many: write a number",
		"[[program]]\ncalls = -1":                      ":2: calls: -1: write a number from 0",
		"[[program]]\n[[connection]]\nport = 65536":    ":3: port: 65536: write a port",
		"[[connection]]\nport = '9-1'":                 ":2: port: 9-1: write a port",
		"[[connection]]\nport = []":                    ":2: port: 0 values",
		"[[connection]]\naddress = ['10.0.0.0/8','x']": ":2: address: x: write an address or a subnet",
		"[[connection]]\naddress = 'fe80::1%eth0'":     ":2: address: ",
		"[[connection]]\ndirection = 'up'":             ":2: direction: up: write in",
		"[[connection]]\nupgrade = 'no'":               ":2: upgrade: no: write true or false",
		"fabric = '/run/exn'":                          ":1: unknown key \"fabric\"",
		"[program]\nname='x'":                          ":",
		"[[program]]\nname = 'a":                       ":2: ",
		strings.Repeat("[[connection]]\n", 65):         "more than 64 tables",
	} {
		p, err := Read(write(t, text))
		if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, p, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Whatever a file contains, the library gets text of the form that it expects.
func FuzzParse(f *testing.F) {
	f.Add(Example)
	f.Add("[[connection]]\nport=[1,'2-3']\naddress=['::/0']")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parse(text)
		if err != nil {
			return
		}
		for _, record := range strings.Split(strings.TrimSuffix(p.String(), ";"), ";") {
			words := strings.Split(record, " ")
			switch {
			case record == "":
			case words[0] == "connection" && len(words) == 6:
			case words[0] == "program" && len(words) >= 2:
			default:
				t.Errorf("%q gives %q", text, record)
			}
		}
	})
}
