package main

import "fmt"

// A coded error has an exit code of its own.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// A silent exit code is an answer that has been printed.
type silent struct{ code int }

func (s silent) Error() string { return fmt.Sprintf("exit code %d", s.code) }
