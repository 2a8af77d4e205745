// Package programs holds the tests that run real programs over exn0. They are
// Debian's, unpacked by debroot, and know nothing of exnet: if one behaves
// otherwise than over a cable, exn0 is wrong.
//
// The few that show most run in short mode; the long ones have larger amounts,
// more options and more programs.
package programs
