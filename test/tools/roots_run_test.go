//go:build linux

package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// What root's run can write stands in the record of the user to whom it belongs, who executes nothing there.
//
//test:root
func TestRootsRunInTheTreeOfAUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	user, err := tempuser.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, user.Remove()) })
	tree, ran := filepath.Join(user.Home, "tree"), filepath.Join(user.Home, "ran")
	pccrun := func(as *syscall.SysProcAttr, dir string, args ...string) string {
		cmd := exec.Command(host.Program(t), args...)
		cmd.Dir, cmd.SysProcAttr, cmd.Env = dir, as, []string{"PATH=" + tree + ":/usr/bin:/bin"}
		if as != nil {
			cmd.Env = append(cmd.Env, "HOME="+user.Home)
		}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	own := &syscall.SysProcAttr{Credential: user.Credential()}
	sh := exec.Command("sh", "-ec", `mkdir -m 755 tree other; printf '#!/bin/sh\necho >> ~/ran\n' > tree/npm; chmod 755 tree/npm`)
	sh.Dir, sh.SysProcAttr, sh.Env = user.Home, own, []string{"PATH=/usr/bin:/bin"}
	text, err := sh.CombinedOutput()
	require.NoError(t, err, string(text))
	ask := func() string { return pccrun(own, filepath.Join(user.Home, "other"), "--allow", "@npm", "--", "true") }
	ask()
	require.FileExists(t, ran, "the control: it is the user's own program")
	require.NoError(t, os.Remove(ran))

	out := pccrun(nil, tree, "--", "true")
	require.Contains(t, ask(), "program "+tree+"/npm skipped: sandboxed commands can write "+tree, out)
	require.NoFileExists(t, ran)
	require.Contains(t, pccrun(nil, t.TempDir(), "--allow", "@npm", "--", "true"), "program "+tree+"/npm skipped: root executes only what root alone can change")
}
