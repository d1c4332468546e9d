package conformance_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
)

// TestSmallFiles: a provider may carry files that are smaller than the program, the workspace and what comes back: each
// goes in parts, and none of them stays.
func TestSmallFiles(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	small := func(says int64) *task {
		return newTask(t, &place{name: least.name, start: func(t *testing.T) *served { return startExampleOf(t, most, remote.Facts{MaxFile: says}) }})
	}
	o := small(0).run("true")
	require.ErrorContains(t, o.err, "payload too large", "the control: it carries no larger one")

	k := small(most)
	text := make([]byte, 3*most) // which nobody compresses
	_, _ = rand.Read(text)
	large := string(text)
	k.write("large", large)
	out := k.meanwhile("sha256sum large; (cat large; head -c 3000000 /dev/urandom) > made; sha256sum made; touch ready; cat", func(io.Writer) {
		names, _, err := k.copied(providers.Copy{Running: true, Filter: []string{"made"}})
		require.NoError(t, err)
		require.Greater(t, len(names["made"]), 2*most)
		left, err := filepath.Glob(filepath.Join(k.home(k.stand("running")[0]), ".pccrun-proj-*"))
		require.NoError(t, err)
		require.Empty(t, left, "a part stays there")
	})
	require.NoError(t, out.err)
	require.Equal(t, []string{"A made", "A ready"}, k.changed())
	_, err := k.apply()
	require.NoError(t, err)
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	require.Equal(t, sum(large)+"  large\n"+sum(k.read("made"))+"  made\n", out.out)
	k.nothingLeft()
}
