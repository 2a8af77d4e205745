//go:build race

package dissect

const raced = true
