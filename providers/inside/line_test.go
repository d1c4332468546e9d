package inside

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// fault is a line that alters what it carries.
type fault struct {
	net.Conn
	mu   sync.Mutex
	left int // bytes until it acts; < 0: never
	act  func(f *fault, b []byte) ([]byte, error)
}

func (f *fault) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left < 0 || len(b) < f.left {
		if f.left > 0 {
			f.left -= len(b)
		}
		return f.Conn.Write(b)
	}
	f.left = -1
	text, err := f.act(f, b)
	if len(text) > 0 {
		_, _ = f.Conn.Write(text)
	}
	return len(b), err
}

var errCut = errors.New("cut")

// faults are what happens to lines.
var faults = map[string]func(f *fault, b []byte) ([]byte, error){
	"none": nil,
	"cut in the middle of a record": func(f *fault, b []byte) ([]byte, error) {
		_, _ = f.Conn.Write(b[:len(b)/2])
		f.Conn.Close()
		return nil, errCut
	},
	"a record twice": func(_ *fault, b []byte) ([]byte, error) { return append(append([]byte{}, b...), b...), nil },
	"a record lost":  func(*fault, []byte) ([]byte, error) { return nil, nil },
	"a record altered": func(_ *fault, b []byte) ([]byte, error) {
		b = append([]byte{}, b...)
		b[len(b)-5] ^= 1
		return b, nil
	},
}

// TestConn sends much both ways over lines that fail, and holds what came against what was sent.
func TestConn(t *testing.T) {
	for name, act := range faults {
		t.Run(name, func(t *testing.T) {
			a, b := NewConn(), NewConn()
			a.beat, b.beat = 50*time.Millisecond, 50*time.Millisecond
			stop := make(chan struct{})
			var lines sync.WaitGroup
			lines.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					left, right := net.Pipe()
					one := &fault{Conn: left, left: -1, act: act}
					two := &fault{Conn: right, left: -1, act: act}
					if act != nil {
						one.left, two.left = 10_000+rand.IntN(200_000), 10_000+rand.IntN(200_000)
					}
					var both sync.WaitGroup
					both.Go(func() { _ = a.Carry(one, nil) })
					both.Go(func() { _ = b.Carry(two, nil) })
					both.Wait()
				}
			})
			sent := make([]byte, 3<<20)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			var talk sync.WaitGroup
			for _, pair := range [][2]*Conn{{a, b}, {b, a}} {
				talk.Go(func() {
					n, err := pair[0].Write(sent)
					require.NoError(t, err)
					require.Equal(t, len(sent), n)
				})
				talk.Go(func() {
					came := make([]byte, len(sent))
					_, err := io.ReadFull(pair[1], came)
					require.NoError(t, err)
					require.Equal(t, sha256.Sum256(sent), sha256.Sum256(came))
				})
			}
			talk.Wait()
			close(stop)
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
			lines.Wait()
		})
	}
}

// TestConnWaits has a writer wait where nobody takes what it writes.
func TestConnWaits(t *testing.T) {
	c := NewConn()
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, maxKept+1))
		wrote <- err
	}()
	kept := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.kept)
	}
	await.Until(t, "as much is kept as may be", func() bool { return kept() == maxKept })
	begun := time.Now()
	c.Flush(50 * time.Millisecond)
	require.GreaterOrEqual(t, time.Since(begun), 50*time.Millisecond)
	require.Equal(t, maxKept, kept())
	require.Empty(t, wrote)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-wrote, io.EOF)
}

// TestConnForgotten meets another side that knows nothing of what was sent.
func TestConnForgotten(t *testing.T) {
	c := NewConn()
	_, err := c.Write([]byte("sent"))
	require.NoError(t, err)
	line := func(text string) io.ReadWriteCloser {
		return struct {
			io.Reader
			io.Writer
			io.Closer
		}{io.MultiReader(bytes.NewBufferString(text)), io.Discard, io.NopCloser(nil)}
	}
	require.ErrorIs(t, c.Carry(line("welcome\nH x\nH 4\n"), nil), io.EOF)
	require.ErrorIs(t, c.Carry(line("H 0\n"), nil), ErrForgotten)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, ErrForgotten)
	for _, text := range []string{"H 0\nA x\n", "H 0\nD 0 1\n", "H 0\nD x 0 AA==\n", "H 0\nD 0 00000000 AA==\n", "H 0\nD 1 d202ef8d AA==\n", "H 0\nX\n"} {
		require.ErrorContains(t, NewConn().Carry(line(text), nil), "a record", text)
	}
}

// TestPack: text that is alike goes in few bytes, what is random as it is, and nothing expands to more than a record holds.
func TestPack(t *testing.T) {
	text := bytes.Repeat([]byte("a line of a build's output\n"), 1<<20)[:maxRecord]
	packed := pack(text)
	require.Less(t, len(packed), len(text)/10)
	back, err := unpack(packed)
	require.NoError(t, err)
	require.Equal(t, text, back)
	require.Nil(t, pack([]byte("short")))
	random := make([]byte, maxRecord)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	require.Nil(t, pack(random))
	_, err = unpack(pack(append(text, text...)))
	require.Error(t, err)

	a, b := NewConn(), NewConn()
	left, right := net.Pipe()
	counted := &counter{Conn: left}
	go func() { _ = a.Carry(counted, nil) }()
	go func() { _ = b.Carry(right, nil) }()
	go func() { _, _ = a.Write(bytes.Repeat(text, 40)) }()
	got := make([]byte, 40*len(text))
	_, err = io.ReadFull(b, got)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat(text, 40), got)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Less(t, counted.sent.Load(), int64(len(got)/10))
}

// counter counts what it carries.
type counter struct {
	net.Conn
	sent atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return c.Conn.Write(b)
}
