// Package answers tests that what is said of connections is true: the state and the reason
// that exn-tun show sockets shows at both ends, what --verbose says, and when --require
// resets. Real programs with the library, without it, with one of another version, and with a
// mistake that a new user makes.
package answers
