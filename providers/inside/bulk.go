package inside

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Shared is the argument before the path of a file that [Bulk] uses.
const Shared = "--shared"

// A half of the file is one direction's; less than bulkLeast goes over the connection.
const (
	bulkHalf  = 4 << 20
	bulkPiece = bulkHalf / 8
	bulkLeast = 8 << 10

	// BulkSize is the file's.
	BulkSize = 2 * bulkHalf
)

// Bulk is a connection whose large writes go through a file that both ends have open:
// an engine copies what it carries from process to process, several times and in small
// pieces. The connection then says only that there is something in the file, and when it
// was read. Short messages and the heads of streams stay on the connection: the command,
// which can write to the file, changes no more than what its own streams carry.
//
//	'd' length  that many bytes follow
//	'f' length  that many are the next in the sender's half of the file
//	'r' length  that many of the other's half were read and can be overwritten
type Bulk struct {
	conn    io.ReadWriteCloser
	file    *os.File
	in, out int64 // where the halves begin

	from   *bufio.Reader // of conn; the reader's own, and so is what follows
	left   int64         // of the piece that is being read
	filed  bool          // it is in the file
	gotten int64         // of the other's half, ever

	sending sync.Mutex // a frame

	mu     sync.Mutex
	change sync.Cond
	use    bool
	put    int64 // in the own half, ever
	free   int64 // of the own half
	read   int64 // of the other's half, and not yet told
	err    error
}

// NewBulk returns a connection that shares a file with another end, which has the same
// file; one of both is the launcher.
func NewBulk(conn io.ReadWriteCloser, file *os.File, launcher bool) *Bulk {
	b := &Bulk{conn: conn, file: file, from: bufio.NewReaderSize(conn, 64<<10), free: bulkHalf}
	b.change.L = &b.mu
	if b.out = bulkHalf; launcher {
		b.in, b.out = b.out, b.in
	}
	go b.tell()
	return b
}

// Challenge writes a text that the other end should find, before either end uses the file.
func (b *Bulk) Challenge(text string) error {
	_, err := b.file.WriteAt([]byte(text), b.out)
	return err
}

// Answer writes what [Bulk.Challenge] has written at the other end. It is called once
// before too: then, a kernel that keeps what it has read of a file is found out.
func (b *Bulk) Answer() error {
	text := make([]byte, 64)
	if _, err := b.file.ReadAt(text, b.in); err != nil {
		return err
	}
	_, err := b.file.WriteAt(text, b.out)
	return err
}

// Answered reports whether the other end has found a text.
func (b *Bulk) Answered(text string) bool {
	got := make([]byte, len(text))
	_, err := b.file.ReadAt(got, b.in)
	return err == nil && string(got) == text
}

// Use lets large writes go through the file from now on.
func (b *Bulk) Use() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use = true
}

// frame sends a frame.
func (b *Bulk) frame(kind byte, length int, text []byte) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(length))
	_, err := b.conn.Write(append(head, text...))
	return err
}

// Write is called by one goroutine at a time.
func (b *Bulk) Write(text []byte) (n int, err error) {
	for n < len(text) && err == nil {
		var sent int
		sent, err = b.write(text[n:])
		n += sent
	}
	return n, err
}

func (b *Bulk) write(text []byte) (int, error) {
	b.mu.Lock()
	if !b.use || len(text) < bulkLeast {
		b.mu.Unlock()
		n := min(len(text), bulkPiece)
		return n, b.frame('d', n, text[:n])
	}
	at := b.put % bulkHalf
	n := min(int64(len(text)), bulkHalf-at, bulkPiece)
	for b.free < n && b.err == nil {
		b.change.Wait()
	}
	err := b.err
	b.put, b.free = b.put+n, b.free-n
	b.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if _, err := b.file.WriteAt(text[:n], b.out+at); err != nil {
		return 0, err
	}
	return int(n), b.frame('f', int(n), nil)
}

// Read is called by one goroutine at a time.
func (b *Bulk) Read(text []byte) (n int, err error) {
	defer func() {
		if err != nil {
			b.fail(err)
		}
	}()
	for b.left == 0 {
		var head [5]byte
		if _, err := io.ReadFull(b.from, head[:]); err != nil {
			return 0, err
		}
		length := int64(binary.BigEndian.Uint32(head[1:]))
		switch kind := head[0]; {
		case kind == 'd', kind == 'f' && length <= bulkHalf-b.gotten%bulkHalf:
			b.left, b.filed = length, kind == 'f'
		case kind == 'r':
			b.mu.Lock()
			b.free = min(b.free+length, bulkHalf)
			b.mu.Unlock()
			b.change.Broadcast()
		default:
			return 0, fmt.Errorf("the other end of the container's stream sent %q, length %d", kind, length)
		}
	}
	text = text[:min(int64(len(text)), b.left)]
	if !b.filed {
		n, err = b.from.Read(text)
		b.left -= int64(n)
		return n, err
	}
	if n, err = b.file.ReadAt(text, b.in+b.gotten%bulkHalf); err != nil {
		return 0, errors.Join(io.ErrUnexpectedEOF, err) // somebody has cut the file short
	}
	b.left, b.gotten = b.left-int64(n), b.gotten+int64(n)
	b.mu.Lock()
	b.read += int64(n)
	b.mu.Unlock()
	b.change.Broadcast()
	return n, nil
}

// tell says what was read, a piece at a time: the other end always has room for one then.
// The reader does not do it, which has to read on so that the other end can write.
func (b *Bulk) tell() {
	for {
		b.mu.Lock()
		for b.read < bulkPiece && b.err == nil {
			b.change.Wait()
		}
		n, err := b.read, b.err
		b.read = 0
		b.mu.Unlock()
		if err != nil || b.frame('r', int(n), nil) != nil {
			return
		}
	}
}

// fail ends all waiting.
func (b *Bulk) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
	}
	b.change.Broadcast()
}

// Close closes the connection and the file.
func (b *Bulk) Close() error {
	b.fail(os.ErrClosed)
	return errors.Join(b.conn.Close(), b.file.Close())
}
