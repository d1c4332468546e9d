package workspace

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
)

// TestRefusedAsSaid: of what is said to have been tried that counts which is as it was, once.
func TestRefusedAsSaid(t *testing.T) {
	w := newWatchman(t)
	for _, name := range []string{".envrc", ".npmrc", ".vscode/t", ".vscode/host"} {
		fixture.Write(t, w.root+"/"+name, "x")
	}
	w.begin()
	time.Sleep(2 * racy) // by the clock that files have it is no longer the beginning
	fixture.Write(t, w.root+"/.npmrc", "host")
	fixture.Write(t, w.root+"/.vscode/host", "host")
	require.NoError(t, os.Remove(w.root+"/.envrc"))
	_, err := w.guard.Finish()
	require.NoError(t, err)
	defer w.guard.Close()
	w.guard.unwritten = []Refusal{{Path: w.root + "/.git/config", Why: ".git/config"}}
	in := func(name string) Refusal { return Refusal{Path: w.root + "/" + name, Why: "x"} }
	list := (Guards{w.guard}).Refused([]Refusal{
		in(".vscode/t"), in(".vscode/host"), in(".npmrc"), in(".envrc"), in(".git/config"),
		in(".vscode/t"), in(".vscode/new"), in(".vscode/t/new"), {Path: "/elsewhere/config", Why: ".git/config"},
	})
	var paths []string
	for _, r := range list {
		paths = append(paths, r.Path)
	}
	require.Equal(t, []string{"/elsewhere/config", w.root + "/.git/config", w.root + "/.vscode/t"}, paths)
	require.Equal(t, ".git/config", list[1].Why, "the guard's own comes first")
}
