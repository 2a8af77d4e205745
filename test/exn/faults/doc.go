// Package faults tests exn0 when daemons die, stall or lie, when the fabric directory or the
// interface disappears, and when malformed data arrive. What can work goes on, what cannot work
// ends, nothing hangs, and every loss is counted.
package faults
