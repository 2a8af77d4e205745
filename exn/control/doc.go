// Package control lets programs ask a daemon on a fabric for its state. Each node has a UNIX socket
// in the fabric directory, and each connection carries one question.
//
//	// the daemon
//	s, err := control.Listen(dir, node, map[string]control.Handler{
//		"state": func(c *control.Call) error { return c.Reply(state()) },
//	})
//	defer s.Close()
//
//	// the asking program
//	answer, err := control.Ask(ctx, dir, node, "state", nil, &state)
//	defer answer.Close()
//
// An answer may go on after the reply: the asker reads from the Answer what the handler writes to
// its Call, for as long as both like. Captured frames travel that way.
//
// # Protocol
//
//	► {"exnet":1,"command":"state","arguments":{…}}\n
//	◄ {"exnet":1,"reply":{…}}\n   or   {"exnet":1,"error":"…"}\n
//	◄ whatever the command says follows
//
// The number is the version of the protocol, including commands and arguments. Closing the sending
// direction ends the question: the handler's context is done, and what the handler still writes is
// read to the end.
//
// # Trust
//
// Any process that can open the fabric directory may ask, and asking changes nothing. Input is
// bounded all the same: the length of a question, the time it may take, how many are asked at once,
// and how long a reader may pause. A client that exceeds a bound loses its connection, and nothing
// else happens.
package control
