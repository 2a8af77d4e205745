package main

import "strings"

// helpWidth is how long lines of help are.
const helpWidth = 100

// wrapped breaks a paragraph into lines, each of which begins with indent.
func wrapped(text, indent string) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
			b.WriteString(indent)
			length = len(indent)
		case length+1+len(word) > helpWidth:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	if length > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}
