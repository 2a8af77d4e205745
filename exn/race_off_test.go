//go:build !race

package exn

// raced says that the race detector watches.
const raced = false
