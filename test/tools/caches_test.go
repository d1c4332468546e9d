//go:build linux

package tools

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/test/internal/host"
)

// moduleProxy makes a module proxy of files, with modules of one version each.
func moduleProxy(t *testing.T, dir string, modules ...string) {
	for _, m := range modules {
		var archive bytes.Buffer
		z := zip.NewWriter(&archive)
		name := filepath.Base(m)
		for file, text := range map[string]string{"go.mod": "module " + m + "\n", name + ".go": "package " + name + "\n"} {
			w, err := z.Create(m + "@v1.0.0/" + file)
			require.NoError(t, err)
			_, err = w.Write([]byte(text))
			require.NoError(t, err)
		}
		require.NoError(t, z.Close())
		at := filepath.Join(dir, m, "@v")
		require.NoError(t, os.MkdirAll(at, 0o755))
		for file, text := range map[string]string{"list": "v1.0.0\n", "v1.0.0.info": `{"Version":"v1.0.0"}`, "v1.0.0.mod": "module " + m + "\n", "v1.0.0.zip": archive.String()} {
			require.NoError(t, os.WriteFile(filepath.Join(at, file), []byte(text), 0o644))
		}
	}
}

// listing describes a tree: names, modes, sizes and times.
func listing(t *testing.T, dir string) (text string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			text += fmt.Sprintln(path, info.Mode(), info.Size(), info.ModTime())
		}
		return err
	}))
	return text
}

// Who has modules already must get more of them, as who has none does; and on the
// host nothing is there afterwards that was not there before. Where modules lie by which
// variable survey tests.
//
//test:root as_usual
func TestWarmModules(t *testing.T) {
	program := host.Program(t)
	goTool, err := exec.LookPath("go")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		env     []string // ~ is the home
		mod     string   // where modules lie
		flags   []string
		refuses bool
	}{
		"as usual":      {mod: "go/pkg/mod"},
		"a moved cache": {env: []string{"GOMODCACHE=~/dev/mod"}, mod: "dev/mod"},
		"the control":   {mod: "go/pkg/mod", flags: []string{"--read", "~/go/pkg/mod"}, refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "u")
			moduleProxy(t, home+"/ws/proxy", "example.com/warm", "example.com/fresh")
			in := func(text string) string { return strings.ReplaceAll(text, "~", home) }
			env := []string{"HOME=" + home, "PATH=" + filepath.Dir(goTool) + ":" + system, "GOPROXY=file://" + home + "/ws/proxy", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=mod", "GOTELEMETRY=off"}
			for _, e := range c.env {
				env = append(env, in(e))
			}
			run := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
				cmd.Dir, cmd.Env = home+"/ws", env
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			require.NoError(t, os.WriteFile(home+"/ws/go.mod", []byte("module m\n\ngo 1.21\n"), 0o644))
			out, err := run("go", "get", "example.com/warm@v1.0.0")
			require.NoError(t, err, out)
			mod := filepath.Join(home, c.mod)
			t.Cleanup(func() { exec.Command("chmod", "-R", "u+w", mod).Run() })
			require.FileExists(t, mod+"/example.com/warm@v1.0.0/warm.go")
			before := listing(t, mod)

			args := append([]string{program, "-q", "--env", "GOPROXY", "--env", "GOSUMDB", "--env", "GOTOOLCHAIN", "--env", "GOFLAGS"}, c.flags...)
			for i := range args {
				args[i] = in(args[i])
			}
			inside := func(script string) (string, error) { return run(append(args, "--", "sh", "-ec", script)...) }
			out, err = inside("mv proxy/example.com/warm w; go mod download example.com/warm@v1.0.0; mv w proxy/example.com/warm; go list -m -f '{{.Dir}}' example.com/warm")
			require.NoError(t, err, out)
			require.Contains(t, out, mod+"/example.com/warm@v1.0.0", "what is there already is found")
			out, err = inside("go get example.com/fresh@v1.0.0; cat $(go list -m -f '{{.Dir}}' example.com/fresh)/fresh.go")
			if c.refuses || !kernel.AtLeast(6, 6) {
				require.Error(t, err)
				require.Contains(t, out, "read-only file system")
			} else {
				require.NoError(t, err, out)
				require.Contains(t, out, "package fresh")
				out, err = inside("go clean -modcache || :; ! ls " + mod + "/example.com")
				require.NoError(t, err, out)
			}
			require.Equal(t, before, listing(t, mod))
			require.NoDirExists(t, mod+"/example.com/fresh@v1.0.0")
		})
	}
}
