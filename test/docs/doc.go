// Package docs runs the commands that documents show, from their text.
//
// A block of code in README.md and docs/operations.md has a mark in front, which readers do not
// see:
//
//	<!-- run: NAME -->       the test NAME of this package runs it
//	<!-- not run: WHY -->    it cannot be run, or is no command
//
// A block is run line by line, as a reader would type it: a line that fails is tried again until it
// passes, since the one before it may still be starting. It sees the programs of bin, those of
// Debian packages (test/debroot), and a network, processes and /run of its own.
package docs
