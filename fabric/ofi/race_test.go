//go:build race

package ofi

const raceAllocates = "the race detector makes calls of C allocate"
