//go:build unix

package ask

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// What a run can write of the user's profile does not become the user's by an answer.
func TestWidened(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	work, file := filepath.Join(home, "work"), filepath.Join(home, ".config/pccrun/profiles/default.jsonc")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.Mkdir(work, 0o700))
	require.NoError(t, os.WriteFile(file, []byte("{\"extends\": \"default\"} // mine\n"), 0o600))
	req := profiles.Request{Host: profiles.Host{UID: os.Getuid(), Home: home, Environ: []string{"HOME=" + home}, Cwd: work, Memory: 1 << 30}}
	policy, err := profiles.Resolve(req)
	require.NoError(t, err)
	a := New(req, policy, false)
	found, text, err := a.widened("x.example")
	require.NoError(t, err)
	require.Equal(t, file, found.Path)
	require.Regexp(t, `(?s)"extends": "default".*"x.example".*} // mine`, text)

	require.NoError(t, os.Rename(file, filepath.Join(work, "p.jsonc")))
	require.NoError(t, os.Symlink(filepath.Join(work, "p.jsonc"), file))
	_, _, err = a.widened("x.example")
	require.ErrorContains(t, err, "the run can write the profile")
}
