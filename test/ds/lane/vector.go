package lane

import (
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Lines reads a file of vectors, a list of words for each line.
func Lines(t *testing.T, file string) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// Number reads a number of one.
func Number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Unfold is the inverse of the recorder's notation of bytes.
func Unfold(t *testing.T, words []string) (b []byte) {
	t.Helper()
	for _, word := range words {
		text, times, repeated := strings.Cut(word, "*")
		part, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(1)
		if repeated {
			n = Number(t, times)
		}
		b = append(b, bytes.Repeat(part, int(n))...)
	}
	return b
}
