//go:build !race

package ofi

const raceAllocates = ""
