//go:build race

package exteth

// raceEnabled: the race detector makes values escape that do not otherwise.
const raceEnabled = true
