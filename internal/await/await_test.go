package await

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUntil(t *testing.T) {
	looks := 0
	Until(t, "the third look", func() bool { looks++; return looks == 3 })
	require.Equal(t, 3, looks)
}

func TestChannels(t *testing.T) {
	c := make(chan int, 1)
	c <- 7
	require.Equal(t, 7, Receive(t, "a number", c))
	close(c)
	Closed(t, "the end", c)
	require.WithinRange(t, Deadline(), time.Now(), time.Now().Add(Patience))
}
