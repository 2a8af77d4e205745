package apps_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
)

// website makes the files that browse asks for, and says where they are.
func website(s *stage) string {
	s.Helper()
	www := filepath.Join(s.dir, "www")
	for name, size := range map[string]int64{"empty": 0, "1k": 1 << 10, "100k": 100 << 10, "large": 20 << 20} {
		writeRandom(s.T, filepath.Join(www, name), size)
	}
	return www
}

// browse asks a server for the files of website, many on one connection and each on
// its own, and returns what came. The flags are curl's.
func browse(s *stage, base string, flags ...string) string {
	s.Helper()
	many := strings.Fields(strings.Repeat(base+"/1k "+base+"/100k ", 50))
	var out strings.Builder
	for _, ask := range [][]string{
		{"-w", "%{http_code} ", base + "/empty", base + "/1k", base + "/100k", base + "/large"},
		{"-w", "%{http_code} ", "-o", "/dev/null", base + "/missing"},
		{"-r", "1000000-3000000", base + "/large"},
		many,
		append([]string{"-H", "Connection: close"}, many...),
	} {
		body := sha256.New()
		s.pipe(nil, body, "curl", append(append([]string{"-sS"}, flags...), ask...)...)
		fmt.Fprintf(&out, "%x\n", body.Sum(nil))
	}
	return out.String()
}

// load has many clients ask for one file at once, for a second.
func load(s *stage, url string) {
	s.Helper()
	text := s.run(nil, "wrk", "-t", "2", "-c", "20", "-d", "1", url)
	if bytes.Contains(text, []byte("errors")) || bytes.Contains(text, []byte("Non-2xx")) || requests(text) == 0 {
		s.Errorf("wrk %s:\n%s", url, text)
	}
}

// digest stands for what is too long to be shown.
func digest(text []byte) string { return fmt.Sprintf("%d bytes, %x\n", len(text), sha256.Sum256(text)) }
