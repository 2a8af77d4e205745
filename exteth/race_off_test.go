//go:build !race

package exteth

const raceEnabled = false
