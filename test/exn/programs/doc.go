// Package programs runs real programs over exn0. They come from Debian, are unpacked by debroot,
// and know nothing of exnet. If one behaves otherwise than over a cable, exn0 is wrong.
//
// In short mode only the few tests run that show most. Without it there are larger amounts of data,
// more options and more programs.
package programs
