package orphans

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// What leaves its parent and its session is found; what ends by itself is not.
func TestEnd(t *testing.T) {
	require.NoError(t, Adopt())
	never, writer, err := os.Pipe()
	require.NoError(t, err)
	defer writer.Close()
	command := exec.Command("sh", "-c", `setsid sh -c 'echo; read never <&3' leaves-its-parent & true`)
	command.ExtraFiles = []*os.File{never}
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	_, err = bufio.NewReader(output).ReadByte() // It executes nothing any more, so its command line stands.
	require.NoError(t, err)
	require.NoError(t, command.Wait())
	left := End(0)
	require.Len(t, left, 1)
	require.Contains(t, left[0], "leaves-its-parent")
	require.Empty(t, End(0))
}
