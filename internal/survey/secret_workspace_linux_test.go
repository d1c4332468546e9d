package survey

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

func TestWorkspaceOfSecrets(t *testing.T) {
	home := fakeHome(t, ".ssh/id", ".config/nvim/.git/HEAD", ".config/app/token", "src/.ssh/x")
	look := func(dir string) error {
		return keepsSecrets(&profiles.Policy{Home: home, Workspace: filepath.Join(home, dir)})
	}
	for _, dir := range []string{".ssh", ".config", ".config/app"} {
		var refused *hint.Error
		require.ErrorAs(t, look(dir), &refused, dir)
		require.ErrorContains(t, refused, filepath.Join(home, dir)+": ")
		require.NotEmpty(t, refused.Hint())
	}
	for _, dir := range []string{".config/nvim", "src", "src/.ssh", ".sshx"} {
		require.NoError(t, look(dir), "control: "+dir)
	}
	_, err := Look(&profiles.Policy{Home: home, Workspace: filepath.Join(home, ".ssh")}, Options{})
	require.ErrorContains(t, err, "keeps secrets")
}
