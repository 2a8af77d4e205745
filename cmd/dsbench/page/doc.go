// Package page makes a directory out of a report that people can look at and post:
//
//	results.json     the report itself; its schema is in package report
//	results.csv      its rows, one line each
//	TEST.svg         a figure for each test
//	index.html       all of it on one page that needs nothing else: no network, no other file
//
// # Figures
//
// A test at one size becomes bars, a path each; one at several sizes becomes lines over
// the size. The axis of values is logarithmic where the largest is more than a few times the
// smallest, which is then said; that of sizes is always. Whiskers are the interquartile
// range of the runs. A row whose runs were disturbed is pale. Every figure
// stands alone: it brings its colours, for light and for dark, and each point its values
// as a title, which browsers show; the page shows them faster.
//
// Where the text of S. Neuwirth's thesis gives a number for what a figure shows, it is
// drawn as a dashed line or band ([references]). It is of other machines (two hosts with
// Tourmalet 100G): it says how the shape compares, not who is faster.
//
// # What it is not
//
// It computes nothing: every number is in the report.
package page
