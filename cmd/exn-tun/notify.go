package main

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// notifyManager tells systemd about a change of state (sd_notify(3)): READY=1,
// STOPPING=1, STATUS=text. Without systemd it does nothing.
func notifyManager(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if name, abstract := strings.CutPrefix(path, "@"); abstract {
		path = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("telling systemd %q: %w", state, err)
	}
	return nil
}
