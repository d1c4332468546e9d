package native

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSnap(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink("/usr/bin/snap", dir+"/kubectl.convert"))
	require.NoError(t, os.Symlink("/usr/bin/env", dir+"/other"))
	for path, want := range map[string]string{dir + "/kubectl.convert": "kubectl", dir + "/other": "", dir + "/none": ""} {
		name, is := snap([]string{path})
		require.Equal(t, want != "", is, path)
		if is {
			require.Equal(t, want, name)
		}
	}
	_, is := snap(nil)
	require.False(t, is)
}

func TestSigns(t *testing.T) {
	for word, want := range map[string]bool{"-S": true, "-aS": true, "-Skey": true, "--gpg-sign=x": true, "--Signoff": false, "-s": false, "S": false, "--allow-empty": false} {
		require.Equal(t, want, signs(word), word)
	}
}
