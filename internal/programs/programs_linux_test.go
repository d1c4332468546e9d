package programs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where a process's own links lead, their text does not say: /proc/N/root of a sandbox reads "/".
func TestFindByAProcess(t *testing.T) {
	w := newWorld(t)
	w.program(w.own+"/tool", "#!/bin/sh")
	w.path("/proc/self/root" + w.own)
	require.Contains(t, w.found("tool"), "sandboxed commands can write /proc/")
	w.path(w.own)
	require.Equal(t, w.own+"/tool", w.found("tool"), "control")
	w.Environ = append(w.Environ, "GNUPGHOME=/proc/self/root/opt", "TZ=/opt")
	p, err := w.Find("tool", nil)
	require.NoError(t, err)
	require.NotContains(t, p.Env, "GNUPGHOME=/proc/self/root/opt")
	require.Contains(t, p.Env, "TZ=/opt", "control")
	covers, err := w.Covers("/proc/self/status")
	require.False(t, covers, "no link but self itself")
	require.NoError(t, err)
	_, err = os.Stat("/proc/self/root" + w.own + "/tool")
	require.NoError(t, err, "control: the kernel goes there")
}
