package messages

import (
	"bufio"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A long wait is explained in a pipe too, once; one that is over in time is not.
func TestSlow(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	before, usual := os.Stderr, patience
	os.Stderr = w
	defer func() { os.Stderr, patience = before, usual }()
	Slow("over at once")()
	patience[0] = time.Millisecond
	done := Slow("checking")
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "pccrun: checking …\n", line)
	done()
}
