package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"exnet/directsockets/reach"
	"exnet/fabric/shm"
)

type checkCommand struct {
	Address string `arg:"" name:"host:port" help:"The address at which a server listens."`
	Fabric  string `help:"The fabric directory of the client (default: EXN_FABRIC, else /run/exn for root, else exn in XDG_RUNTIME_DIR)." placeholder:"DIR"`
	JSON    bool   `name:"json" help:"Print one JSON object."`
}

// Help is the long text of --help.
func (*checkCommand) Help() string {
	return `Connects by TCP, sends nothing, and applies the rules of the library. The answer says what would become of a busy connection that a program under exn-tun run ` +
		`opens to that address. All processes that hold the listening socket are examined, because workers often run as another user than the program that started them. ss -tlnp lists the listeners.

The JSON object has "remote", "upgrade", "why", "remedy", "program", "pid", "uid", "fabric", and "acceptors", a list of the same for each process that may accept.

Exit codes: 0 a busy connection would move to shared memory, 1 there is no connection, or the question cannot be answered, 2 wrong usage, 6 it would stay on TCP.`
}

// Validate implements kong's check.
func (c *checkCommand) Validate() error {
	if c.Address == "" {
		return nil // the parser says that it is missing
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || host == "" {
		return fmt.Errorf("%q is no HOST:PORT, such as 127.0.0.1:6379 or [::1]:80", c.Address)
	}
	return nil
}

// Run implements the command.
func (c *checkCommand) Run(out output) error {
	if c.Fabric == "" {
		c.Fabric = shm.DefaultDir()
	}
	v, err := reach.Try(context.Background(), c.Address, c.Fabric)
	if err != nil {
		return err
	}
	answer := error(nil)
	if !v.Upgrade {
		answer = silent{exitNo}
	}
	if c.JSON {
		return errors.Join(json.NewEncoder(out).Encode(v), answer)
	}
	if v.Upgrade {
		more := ""
		if n := len(v.Acceptors); n > 1 {
			more = fmt.Sprintf(", and so do %d more processes that accept there", n-1)
		}
		_, err = fmt.Fprintf(out, "%v: a busy connection takes lanes: %s (process %d, user %d) uses %s, too%s\n", v.Remote, v.Program, v.PID, v.UID, c.Fabric, more)
	} else {
		_, err = fmt.Fprintf(out, "%v: stays on TCP: %s\n%v: remedy: %s\n", v.Remote, v.Why, v.Remote, v.Remedy)
	}
	return errors.Join(err, answer)
}
