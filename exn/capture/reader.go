package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// ErrStream means that a stream is not what Stream writes.
var ErrStream = errors.New("capture: not a capture of exn-tun")

// mostBlock bounds a block: a super-packet with its headers and options.
const mostBlock = 1 << 20

// A Frame is a captured frame.
type Frame struct {
	Time    time.Time
	Length  int    // of the frame
	Data    []byte // the part that was kept
	Comment string
}

// Line formats a frame in one line.
func (f *Frame) Line() string {
	var h headers
	h.parse(f.Data)
	return fmt.Sprintf("%s %s, %d bytes; %s", f.Time.Format("15:04:05.000000"), &h, f.Length, f.Comment)
}

// A Block is a part of a stream.
type Block struct {
	// Raw is the block as it appears in the stream, to be written to a file. It is valid until
	// the next call of Next.
	Raw     []byte
	Frame   *Frame // nil if the block is not a frame
	Dropped uint64 // how many frames the capture has lost so far, if the block says that
}

// A Reader reads what Stream writes.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader makes a reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 256<<10)} }

// Waits reports whether Next would have to wait for more of the stream.
func (r *Reader) Waits() bool { return r.r.Buffered() == 0 }

// Begun waits until the stream begins. From then on each frame is captured.
func (r *Reader) Begun() error {
	_, err := r.r.Peek(1)
	return err
}

// Next returns the next block, or io.EOF at the end of the stream.
func (r *Reader) Next() (*Block, error) {
	head, err := r.r.Peek(8)
	if len(head) == 0 && errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it ends within a block: %w", ErrStream, err)
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n < 12 || n > mostBlock || n%4 != 0 {
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrStream, n)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	b := &Block{Raw: r.buf[:n]}
	if _, err := io.ReadFull(r.r, b.Raw); err != nil {
		return nil, fmt.Errorf("%w: it ends within a block: %w", ErrStream, err)
	}
	if binary.LittleEndian.Uint32(b.Raw[n-4:]) != n {
		return nil, fmt.Errorf("%w: the lengths of a block differ", ErrStream)
	}
	return b, b.parse(b.Raw[8 : n-4])
}

func (b *Block) parse(body []byte) error {
	kind := binary.LittleEndian.Uint32(b.Raw)
	switch kind {
	case blockSection:
		if len(body) < 16 || binary.LittleEndian.Uint32(body) != byteOrderMagic {
			return fmt.Errorf("%w: of another byte order", ErrStream)
		}
		return nil
	case blockPacket:
		if len(body) < 20 {
			return fmt.Errorf("%w: a frame of %d bytes", ErrStream, len(body))
		}
		kept := int(binary.LittleEndian.Uint32(body[12:]))
		padded := 20 + (kept+3)&^3
		if kept > mostBlock || padded > len(body) {
			return fmt.Errorf("%w: %d bytes of a frame in a block of %d", ErrStream, kept, len(body))
		}
		nanos := uint64(binary.LittleEndian.Uint32(body[4:]))<<32 | uint64(binary.LittleEndian.Uint32(body[8:]))
		b.Frame = &Frame{
			Time:   time.Unix(0, int64(nanos)),
			Length: int(binary.LittleEndian.Uint32(body[16:])),
			Data:   body[20 : 20+kept],
		}
		return options(body[padded:], func(code uint16, value []byte) {
			if code == optionComment {
				b.Frame.Comment = string(value)
			}
		})
	case blockStatistics:
		if len(body) < 12 {
			return fmt.Errorf("%w: statistics of %d bytes", ErrStream, len(body))
		}
		return options(body[12:], func(code uint16, value []byte) {
			if code == optionDropped && len(value) == 8 {
				b.Dropped = binary.LittleEndian.Uint64(value)
			}
		})
	}
	return nil
}

// options calls f for each option.
func options(b []byte, f func(code uint16, value []byte)) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("%w: an option is cut", ErrStream)
		}
		code, n := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if b = b[4:]; (n+3)&^3 > len(b) {
			return fmt.Errorf("%w: an option is cut", ErrStream)
		}
		if code == optionEnd {
			return nil
		}
		f(code, b[:n])
		b = b[(n+3)&^3:]
	}
	return nil
}
