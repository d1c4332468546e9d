package messages

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestByteCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 10<<10 - 1: "10.0K", 10 << 10: "10K", 1000<<10 - 1: "999K", 1000 << 10: "1.0M", 5 << 30: "5.0G", 1 << 60: "1048576T",
	} {
		require.Equal(t, want, ByteCount(n), n)
	}
}
