// Package apps holds the tests that run real programs with and without the
// library and compare what they did.
//
// The programs are Debian's, unpacked by debroot. Each scenario is run on plain
// TCP first; then with the library at both ends, where most bytes must go by
// lanes; then with the library at one end only.
package apps
