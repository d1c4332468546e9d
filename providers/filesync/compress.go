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

// Decompress returns a reader that decodes zstd or gzip. How much comes of it is for who reads: an archive has
// [Limits]. It reads and decodes in the caller's goroutine alone, so that there is nothing to close.
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
	switch string(magic) {
	case "\x1f\x8b":
		r, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return r, nil
	case "\x28\xb5":
		r, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)) // RFC 8878, section 3.1.1.1.2: what every decoder has; ours takes 4
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return r, nil
	}
	return nil, nil
}
