package messages

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1: "1", 1023: "1023", 1024: "1k", 1536: "1.5k", 512 << 20: "512m", 4 << 30: "4g", 1 << 40: "1t", 18 << 30: "18g"} {
		require.Equal(t, want, SizeText(n), n)
	}
}
