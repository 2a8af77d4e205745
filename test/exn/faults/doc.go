// Package faults holds the tests of what exn0 does when daemons die, stall or
// lie, when the fabric directory or the interface goes, and when what arrives
// makes no sense: what works goes on, what cannot work ends, nothing hangs, and
// every loss is counted.
package faults
