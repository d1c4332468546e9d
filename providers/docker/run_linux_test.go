package docker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// A container that keeps less than was planned is a start that came to nothing.
func TestJudge(t *testing.T) {
	judge := func(runtime string, change func(*inside.Ready)) error {
		p, err := planned(t, Options{Runtime: runtime}, profiles.Request{Limits: [7]string{2: "none"}})
		require.NoError(t, err)
		ready := &inside.Ready{Canary: "abc", Kernel: "6.18.0", Landlock: 7, Filter: true, UID: 1000}
		if runtime == Runsc {
			ready.Kernel, ready.Landlock = "4.19.0-gvisor", 0
		}
		change(ready)
		return (&running{plan: *p}).judge(ready)
	}
	same := func(*inside.Ready) {}
	require.NoError(t, judge(Runc, same), "the control")
	require.NoError(t, judge(Runsc, same), "the control")
	for want, c := range map[string]struct {
		runtime string
		change  func(*inside.Ready)
	}{
		"other files":     {Runc, func(r *inside.Ready) { r.Canary = "sings otherwise" }},
		"user 0":          {Runc, func(r *inside.Ready) { r.UID = 0 }},
		"capabilities 0x": {Runc, func(r *inside.Ready) { r.Caps = 1 << 21 }},
		"seccomp":         {Runsc, func(r *inside.Ready) { r.Filter = false }},
		"not gVisor":      {Runsc, func(r *inside.Ready) { r.Kernel = "6.18.0" }},
		"Landlock":        {Runc, func(r *inside.Ready) { r.Landlock = 0 }},
	} {
		require.ErrorContains(t, judge(c.runtime, c.change), want)
	}
}

func TestWhatPidOneSays(t *testing.T) {
	r := &running{plan: plan{provider: provider(t, Options{}), inside: inside.Plan{Argv: []inside.Text{"tool"}}}}
	err := r.failed(
		&inside.Failed{Step: "execute tool", Errno: int(unix.ENOENT), Text: "no such file or directory", Exec: true}, "tool",
	)
	var exec *providers.ExecError
	require.ErrorAs(t, err, &exec)
	require.ErrorIs(t, exec, unix.ENOENT)
	require.EqualError(t, r.failed(&inside.Failed{Step: "enter /x", Text: "gone"}, "tool"), "docker: enter /x: gone")
	r.plan.provider = provider(t, Options{Image: "i"})
	err = r.failed(&inside.Failed{Step: "execute tool", Errno: int(unix.ENOENT), Exec: true}, "tool")
	require.ErrorAs(t, err, &exec)
	require.ErrorContains(t, err, "the image i: tool")

	var said complaints
	for _, line := range []string{"pccrun: inside: odd\n", "more\n"} {
		_, err := said.Write([]byte(line))
		require.NoError(t, err)
	}
	assert.Equal(t, "inside: odd", said.String())
}

func TestRefusedByTheEngine(t *testing.T) {
	p := &plan{facts: facts()}
	err := p.refused("start the container", errors.New(answered+"write /x:\n  no space left on device."))
	require.EqualError(t, err, "docker: start the container: write /x: no space left on device")
	var engine *EngineError
	require.ErrorAs(t, err, &engine)
	assert.Contains(t, engine.Hint(), "docker system prune")
	require.Error(t, engine.Unwrap())
}

// Destroy takes away what was made on this machine, and nothing beside it.
func TestDestroyFiles(t *testing.T) {
	p := provider(t, Options{})
	assert.Equal(t, Name, p.Name())
	p.host.StateDir = t.TempDir()
	dir := filepath.Join(p.host.StateDir, "docker", "abc")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(
		t,
		p.Destroy(t.Context(), providers.Resource{Labels: map[string]string{providers.LabelKey: "../docker"}}),
	)
	require.NoError(t, p.Destroy(t.Context(), providers.Resource{Labels: map[string]string{providers.LabelKey: ".."}}))
	assert.DirExists(t, dir, "the control")
	require.NoError(t, p.Destroy(t.Context(), providers.Resource{Labels: map[string]string{providers.LabelKey: "abc"}}))
	assert.NoDirExists(t, dir)
	_, err := p.Find(t.Context(), "")
	require.ErrorContains(t, err, "no engine answers")
}
