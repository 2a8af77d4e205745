// Package control is how a daemon on a fabric is asked what it does: a UNIX
// socket per node in the fabric directory, one question per connection.
//
//	// the daemon
//	s, err := control.Listen(dir, node, map[string]control.Handler{
//		"state": func(c *control.Call) error { return c.Reply(state()) },
//	})
//	defer s.Close()
//
//	// who asks
//	answer, err := control.Ask(ctx, dir, node, "state", nil, &state)
//	defer answer.Close()
//
// An answer may go on after the reply: a handler that keeps writing to its Call is
// read from the Answer, for as long as both like. That is how captured frames travel.
//
// # Protocol
//
//	► {"exnet":1,"command":"state","arguments":{…}}\n
//	◄ {"exnet":1,"reply":{…}}\n   or   {"exnet":1,"error":"…"}\n
//	◄ whatever the command says follows
//
// The number is the version of all of it, commands and arguments included. Closing
// the sending direction ends the question: the handler's context is done, and what it
// still writes is read to the end.
//
// # Trust
//
// Who can open the fabric directory may ask; nothing is changed by asking. What
// arrives is bounded all the same: the length of a question, the time it may take,
// how many are asked at once, and for how long a reader may not read. Breaking a
// bound ends that connection and nothing else.
package control
