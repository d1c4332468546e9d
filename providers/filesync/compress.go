package filesync

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compress returns a writer that encodes by zstd. Closing it ends the stream, and not what it writes to.
func Compress(to io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
}

// How far a stream may unfold: text rarely does more than twenty times, and with the long window of
// zstd what tools generate some hundred times. What is small may.
const (
	ratioOfGzip = 200
	ratioOfZstd = 1000
	ratioOf     = 16 << 20
)

// Decompress returns a reader that decodes zstd or gzip, and refuses a stream that unfolds to what no
// tree of files does, before it is written anywhere. It reads and decodes in the caller's goroutine alone,
// so that there is nothing to close.
func Decompress(from io.Reader) (io.Reader, error) {
	r, err := plain(bufio.NewReaderSize(from, 64<<10))
	if r == nil && err == nil {
		err = errors.New("neither zstd nor gzip")
	}
	return r, err
}

// Uncompressed is Decompress for a stream that may be a tar as it is.
func Uncompressed(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(from, 64<<10)
	r, err := plain(buffered)
	if r == nil && err == nil {
		return buffered, nil
	}
	return r, err
}

func plain(from *bufio.Reader) (io.Reader, error) {
	magic, _ := from.Peek(2) // RFC 1952, section 2.3.1; RFC 8878, section 3.1.1
	in := &counter{r: from}
	switch string(magic) {
	case "\x1f\x8b":
		r, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return &bounded{r: r, in: in, ratio: ratioOfGzip}, nil
	case "\x28\xb5":
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // RFC 8878, section 3.1.1.1.2: what every decoder has; ours takes 4
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return &bounded{r: r, in: in, ratio: ratioOfZstd}, nil
	}
	return nil, nil
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

type bounded struct {
	r     io.Reader
	in    *counter
	out   int64
	ratio int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.out += int64(n); b.out > ratioOf && b.out/b.ratio > b.in.n {
		return 0, &RefusedError{"", fmt.Sprintf("the stream expands to more than %d times its size", b.ratio)}
	}
	return n, err
}
