//go:build race

package exn

// raced reports whether the race detector is on.
const raced = true
