package ds

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// muslCan says that these are sources of a program that musl can have: not of the library, which is
// compiled against glibc, nor for a sanitizer, which wants it.
func muslCan(flags, sources []string) bool {
	return !slices.ContainsFunc(slices.Concat(flags, sources), func(s string) bool {
		return filepath.IsAbs(s) && s != Headers() || strings.HasPrefix(s, "-fsanitize") || s == "-shared" || s == "-static"
	})
}

// Musl gives the path of the dynamic linker of musl, which is its C library, too, from Debian's
// packages. Without them the test is skipped.
func Musl(t testing.TB) string {
	t.Helper()
	dir := muslDir(t)
	for _, lib := range []string{"lib", "usr/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, lib, "ld-musl-*.so.1")); len(found) > 0 { // the pattern is good
			return found[0]
		}
	}
	t.Fatalf("no dynamic linker of musl in %s", dir)
	return ""
}

func muslDir(t testing.TB) string {
	t.Helper()
	return debroot.Need(t, "musl", "musl-dev").Dir()
}

// muslSpecs has gcc take musl's headers, libraries and dynamic linker instead of glibc's.
const muslSpecs = `%%rename cpp_options old_cpp_options

*cpp_options:
-nostdinc -isystem %[1]s -isystem include%%s -idirafter /usr/include/%[4]s -idirafter /usr/include %%(old_cpp_options)

*cc1:
%%(cc1_cpu) -nostdinc -isystem %[1]s -isystem include%%s -idirafter /usr/include/%[4]s -idirafter /usr/include

*link_libgcc:
-L%[2]s -L .%%s

*libgcc:
libgcc.a%%s %%:if-exists(libgcc_eh.a%%s)

*startfile:
%[3]s/Scrt1.o %[3]s/crti.o crtbeginS.o%%s

*endfile:
crtendS.o%%s %[3]s/crtn.o

*link:
-dynamic-linker %[5]s -nostdlib

*esp_link:


*esp_options:


*esp_cpp_options:


`

// BuildMusl is [Build] for a program with musl, the C library of Alpine's images.
func BuildMusl(t testing.TB, name string, flags []string, sources ...string) string {
	t.Helper()
	linker := Musl(t)
	library, err := filepath.EvalSymlinks(linker)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gcc", "-print-multiarch").Output()
	if err != nil {
		t.Skipf("gcc -print-multiarch: %v", err)
	}
	usr, triple := filepath.Join(muslDir(t), "usr"), filepath.Base(filepath.Dir(library))
	specs := fmt.Sprintf(muslSpecs, filepath.Join(usr, "include", triple), filepath.Dir(library), filepath.Join(usr, "lib", triple),
		strings.TrimSpace(string(out)), linker)
	file := filepath.Join(cache(t), "musl.specs")
	lock := building(t, file+".lock")
	if old, missing := os.ReadFile(file); missing != nil || string(old) != specs { // else others may be reading it
		err = os.WriteFile(file, []byte(specs), 0o644)
	}
	lock.Close()
	if err != nil {
		t.Fatal(err)
	}
	return compile(t, name+"-musl", append([]string{"-specs", file, "-include", "musl.h"}, flags...), sources)
}
