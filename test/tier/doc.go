// Package tier decides which tests belong to which command.
//
//	make test      what a change must pass, in minutes
//	make test-ci   what make test leaves out, sampled by the commit
//	make test-all  everything
//
// A test belongs to make test unless tiers.txt lists it. A row there says which share of the
// test's cases each of the first two commands plays. A test whose first share is 0 is left to the
// later commands as a whole; any other asks [Keep] for each of its cases.
//
// The sample of make test is always the same. That of make test-ci depends on the commit, so
// that a series of commits plays everything, and a failure can be repeated: EXN_SAMPLE names the
// sample, EXN_TIER the tier, as test/suite sets them. Without EXN_TIER a run with -short is like
// make test, and one without is like make test-all.
//
// What a sample leaves out is not reported as skipped tests. Each test logs one line, which
// test/suite adds up by the kind of the cases: "scripts: 310 of 2170".
package tier
