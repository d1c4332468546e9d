package filesync

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// An Encoding is how an archive travels, as a provider takes it.
type Encoding string

// The encodings.
const (
	Uncompressed Encoding = ""
	Gzip         Encoding = "gzip"
	Zstd         Encoding = "zstd"
)

// Compress returns a writer that encodes. Closing it ends the stream, and not what it writes to.
func Compress(to io.Writer, e Encoding) (io.WriteCloser, error) {
	switch e {
	case Uncompressed:
		return nopCloser{to}, nil
	case Gzip:
		return gzip.NewWriterLevel(to, gzip.BestSpeed)
	case Zstd:
		return zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("encoding %q: not known", e)
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// How far a stream may unfold: text rarely does more than twenty times. What is small may.
const (
	maxRatio = 200
	ratioOf  = 16 << 20
)

// Decompress returns a reader that decodes, and refuses a stream that unfolds to what no tree of files
// does, before it is written anywhere.
func Decompress(from io.Reader, e Encoding) (io.ReadCloser, error) {
	in := &counter{r: from}
	switch e {
	case Uncompressed:
		return io.NopCloser(from), nil
	case Gzip:
		r, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return &bounded{r: r, in: in, close: func() { r.Close() }}, nil
	case Zstd:
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return &bounded{r: r, in: in, close: r.Close}, nil
	}
	return nil, fmt.Errorf("encoding %q: not known", e)
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
	close func()
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.out += int64(n); b.out > ratioOf && b.out/maxRatio > b.in.n {
		return 0, &RefusedError{"", fmt.Sprintf("the stream expands to more than %d times its size", maxRatio)}
	}
	return n, err
}

func (b *bounded) Close() error {
	b.close()
	return nil
}
