package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

const (
	// version is the protocol version that both sides must speak.
	version = 1
	// maxQuestion bounds a question in bytes. The longest real one is a capture filter.
	maxQuestion = 4096
	// maxCalls bounds the questions that are answered at once. More wait in the socket's queue.
	maxCalls = 32
	// patience bounds how long a question may take to arrive, how long a reader may pause, and
	// how long the rest of an unwanted answer may take.
	patience = 5 * time.Second
)

// question and answer are the first lines of the two directions.
type question struct {
	Version   int             `json:"exnet"`
	Command   string          `json:"command"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

type answer struct {
	Version int             `json:"exnet"`
	Error   string          `json:"error,omitempty"`
	Reply   json.RawMessage `json:"reply,omitempty"`
}

// A Handler answers one question, on a goroutine of its own. If it returns an error before it
// replied, the asker gets the error.
type Handler func(c *Call) error

// A Call is one question. It belongs to its handler.
type Call struct {
	// Context is done when the asker has gone, or the server is closed.
	Context   context.Context
	arguments json.RawMessage
	conn      *net.UnixConn
	replied   bool
}

// Arguments decodes the arguments. A field that v does not have is an error.
func (c *Call) Arguments(v any) error {
	if c.arguments == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(c.arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// Reply sends the reply. It must be called once, before Write.
func (c *Call) Reply(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return c.send(answer{Version: version, Reply: text})
}

func (c *Call) send(a answer) error {
	c.replied = true
	text, err := json.Marshal(a)
	if err == nil {
		_, err = c.Write(append(text, '\n'))
	}
	return err
}

// Write sends bytes after the reply. It fails when the reader does not take them in time, or has
// gone.
func (c *Call) Write(b []byte) (int, error) {
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return c.conn.Write(b)
}

// A Server answers questions about one node.
type Server struct {
	listener *net.UnixListener
	handlers map[string]Handler
	slots    chan struct{}
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

func socketPath(dir string, node fabric.NodeID) string {
	return filepath.Join(dir, fmt.Sprintf("exn-%d.sock", node))
}

// Listen starts to answer questions about a node. The caller is attached as that node, so an
// existing socket was left behind by a former process.
func Listen(dir string, node fabric.NodeID, handlers map[string]Handler) (*Server, error) {
	path := socketPath(dir, node)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	mode, err := modeIn(dir)
	if err == nil {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: l, handlers: handlers, slots: make(chan struct{}, maxCalls), stop: stop}
	s.wg.Go(func() { s.accept(ctx) })
	return s, nil
}

// modeIn returns the mode of the socket: the processes that may attach may ask.
func modeIn(dir string) (fs.FileMode, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Mode&0o070 == 0o070 {
		return 0o660, nil
	}
	return 0o600, nil
}

// Close ends all calls and removes the socket.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.stop()
	s.wg.Wait()
	return err
}

func (s *Server) accept(ctx context.Context) {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			<-s.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Most likely out of descriptors: an immediate retry would only burn CPU
			// time.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		s.wg.Go(func() {
			defer func() { <-s.slots }()
			s.serve(ctx, conn)
		})
	}
}

// serve answers one connection.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	// Closing the connection ends a Read or Write under way.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &Call{Context: ctx, conn: conn}
	conn.SetReadDeadline(time.Now().Add(patience))
	r := bufio.NewReaderSize(conn, maxQuestion)
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			c.send(answer{Version: version, Error: fmt.Sprintf("a question of more than %d bytes", maxQuestion)})
		}
		return
	}
	var q question
	if err = json.Unmarshal(line, &q); err != nil {
		err = fmt.Errorf("not a question of exnet: %w", err)
	} else if q.Version != version {
		err = fmt.Errorf("this daemon speaks version %d of the control protocol, not %d; use the same exnet everywhere", version, q.Version)
	} else if s.handlers[q.Command] == nil {
		err = fmt.Errorf("this daemon does not know the command %q; use the same exnet everywhere", q.Command)
	}
	if err != nil {
		c.send(answer{Version: version, Error: err.Error()})
		return
	}
	c.arguments = q.Arguments
	conn.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() { // the asker sends nothing more, so any read is the end
		defer close(gone)
		r.ReadByte()
		cancel()
	}()
	if err := s.handlers[q.Command](c); err != nil && !c.replied {
		c.send(answer{Version: version, Error: err.Error()})
	}
	conn.Close()
	<-gone
}
