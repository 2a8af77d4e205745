//go:build race

package exteth

// raceEnabled is true because the race detector makes more values escape to the heap.
const raceEnabled = true
