package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// maxReply bounds a reply in bytes. 100,000 neighbours take a quarter of it.
const maxReply = 64 << 20

// ErrNobody means that no daemon answers for the node.
var ErrNobody = errors.New("control: no daemon answers")

// Nodes lists the nodes of a fabric directory that can be asked, in ID order. It includes nodes
// whose daemon was killed; asking those gives ErrNobody.
func Nodes(dir string) ([]fabric.NodeID, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("fabric directory: %w", err)
	}
	var nodes []fabric.NodeID
	for _, e := range entries {
		s, isOurs := strings.CutPrefix(e.Name(), "exn-")
		s, isSocket := strings.CutSuffix(s, ".sock")
		n, err := strconv.ParseUint(s, 10, 16)
		if isOurs && isSocket && err == nil && fabric.NodeID(n) <= fabric.MaxNodeID && strconv.Itoa(int(n)) == s {
			nodes = append(nodes, fabric.NodeID(n))
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// An Answer is the stream of bytes after a reply.
type Answer struct {
	r    *bufio.Reader
	conn *net.UnixConn
	stop func() bool
}

// Read reads what the handler writes after its reply.
func (a *Answer) Read(b []byte) (int, error) { return a.r.Read(b) }

// end tells the handler that no more is wanted. What it has written can still be read.
func (a *Answer) end() {
	a.conn.SetReadDeadline(time.Now().Add(patience))
	a.conn.CloseWrite()
}

// Close ends the call.
func (a *Answer) Close() error {
	a.stop()
	return a.conn.Close()
}

// Ask asks the daemon of a node and decodes its reply. When ctx is done, the handler's context is
// done, too. Before the reply, Ask then returns an error; after it, the answer ends with what the
// handler still writes. The caller closes the answer.
func Ask(ctx context.Context, dir string, node fabric.NodeID, command string, arguments, reply any) (*Answer, error) {
	q := question{Version: version, Command: command}
	var err error
	if arguments != nil {
		if q.Arguments, err = json.Marshal(arguments); err != nil {
			return nil, fmt.Errorf("asking node %d: %w", node, err)
		}
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("asking node %d: %w", node, err)
	}
	if len(text) >= maxQuestion {
		return nil, fmt.Errorf("asking node %d: the question has %d bytes, at most %d are allowed", node, len(text), maxQuestion-1)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPath(dir, node), Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("node %d of %s: %w; is exn-tun up running?", node, dir, ErrNobody)
	}
	if err != nil {
		return nil, fmt.Errorf("asking node %d: %w", node, err)
	}
	a := &Answer{conn: conn, r: bufio.NewReader(conn), stop: context.AfterFunc(ctx, func() { conn.Close() })}
	if _, err = conn.Write(append(text, '\n')); err == nil {
		err = a.reply(reply)
	}
	if err == nil && !a.stop() {
		err = ctx.Err()
	}
	if err != nil {
		a.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("asking node %d: %w", node, err)
	}
	a.stop = context.AfterFunc(ctx, a.end)
	return a, nil
}

func (a *Answer) reply(v any) error {
	var line []byte
	for {
		part, err := a.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("it closed the connection: %w", io.ErrUnexpectedEOF)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		case len(line) > maxReply:
			return fmt.Errorf("a reply of more than %d bytes", maxReply)
		case err == nil:
			return decode(line, v)
		}
	}
}

func decode(line []byte, v any) error {
	var got answer
	if err := json.Unmarshal(line, &got); err != nil {
		return fmt.Errorf("its answer is malformed: %w", err)
	}
	switch {
	case got.Error != "":
		return errors.New(strings.Map(printable, got.Error))
	case got.Version != version:
		return fmt.Errorf("it speaks version %d of the control protocol, this program %d; use the same exnet everywhere", got.Version, version)
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(got.Reply, v); err != nil {
		return fmt.Errorf("its reply is malformed: %w", err)
	}
	return nil
}

// printable keeps other programs' text from sending control sequences to a terminal.
func printable(r rune) rune {
	if strconv.IsPrint(r) {
		return r
	}
	return -1
}
