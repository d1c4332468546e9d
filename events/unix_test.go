//go:build unix

package events

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func mkfifo(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) }

func itoa(n int) string { return strconv.Itoa(n) }
