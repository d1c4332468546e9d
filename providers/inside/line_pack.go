//go:build !launcher || place

package inside

import (
	"sync"

	"github.com/klauspost/compress/zstd"
)

// expands is what this side says of itself.
const expands = " z"

// packers compress and expand the text of records. What comes expands to no more than a record may hold.
var packers = sync.OnceValues(func() (*zstd.Encoder, *zstd.Decoder) {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	d, failed := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRecord))
	if err != nil || failed != nil {
		panic("BUG: zstd refuses its options")
	}
	return e, d
})

// pack returns a record's bytes compressed; nil where that gains little.
func pack(part []byte) []byte {
	if len(part) < leastPacked {
		return nil
	}
	e, _ := packers()
	if packed := e.EncodeAll(part, nil); len(packed) < len(part)*3/4 {
		return packed
	}
	return nil
}

// unpack undoes it.
func unpack(text []byte) ([]byte, error) {
	_, d := packers()
	return d.DecodeAll(text, nil)
}
