package docker_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/docker"
)

// inVM is a task of an engine that answers as one in a virtual machine, with an image.
func inVM(t *testing.T) *task {
	t.Helper()
	needEngine(t)
	if os.Getenv(podman) != "" {
		t.Skip("needs Docker's engine")
	}
	host, stop, err := world.engine.InVM(int(world.user.GID))
	require.NoError(t, err)
	t.Cleanup(stop)
	k := newTask(t, docker.Runc)
	k.vm, k.Image, k.state = host, "pccrun-test:vm", t.TempDir()
	make := world.engine.Busybox(k.Image, os.Args[0])
	out, err := exec.Command(make[0], make[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	k.env = []string{"PATH=/bin"}
	return k
}

// With an engine in a virtual machine nothing goes by a socket that both sides have: files, the network
// and other commands are the policy's all the same.
func TestAVirtualMachine(t *testing.T) {
	k := inVM(t)
	k.write(t, "a", "workspace\n")
	k.write(t, ".env", "TOKEN=secret\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "served") }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	k.request.Local, k.request.Allow = []string{port}, []string{"example.com"}
	var bound []string
	k.heard.onCreated = func(r providers.Resource) {
		entries, err := os.ReadDir(filepath.Join(k.state, "docker", r.Labels[providers.LabelKey]))
		assert.NoError(t, err)
		for _, e := range entries {
			bound = append(bound, e.Name())
		}
	}
	out, errs, result := k.run(t, "sh", "-c", strings.Join([]string{
		"cat a /of-the-image .env",
		"echo x >.git/hooks/post-commit",
		"wget -qO- http://host.pccrun.internal:" + port,
		"unset http_proxy HTTP_PROXY; wget -qO- http://host.pccrun.internal:" + port + "/by-name",
		"wget -qO- http://evil.example/by-name",
		"echo made >made; exit 3",
	}, "\n"))
	assert.Equal(t, "workspace\nmine\nserved\nserved\n", out, errs)
	assert.Equal(t, 3, result.Code)
	assert.Contains(t, errs, ".env")
	assert.FileExists(t, filepath.Join(k.dir, "made"))
	assert.NoFileExists(t, filepath.Join(k.dir, ".git/hooks/post-commit"))
	assert.Contains(t, bound, "pccrun", "the control: the launcher's copy")
	assert.NotContains(t, bound, "socket")
	refused := map[string]bool{}
	k.heard.mu.Lock()
	for _, d := range k.heard.decisions {
		refused[d.Host] = !d.Allowed
	}
	k.heard.mu.Unlock()
	assert.Equal(t, map[string]bool{"host.pccrun.internal": false, "evil.example": true}, refused)

	k.heard = &heard{started: make(chan struct{})}
	plan, err := k.plan(t, "sh", "-c", "while [ ! -e gone ]; do sh -c 'cat a >/dev/null'; done")
	require.NoError(t, err)
	text, err := json.Marshal(plan.Describe())
	require.NoError(t, err)
	assert.Contains(t, string(text), "/.pccrun/canary", "the control")
	assert.NotContains(t, string(text), "/.pccrun/socket")
	ended := make(chan error)
	go func() {
		_, err := plan.Run(t.Context(), providers.Stdio{}, k.heard)
		ended <- err
	}()
	select {
	case <-k.heard.started:
	case err := <-ended:
		require.NoError(t, err, "before the command started")
	case <-time.After(time.Minute):
		t.Fatal("the command does not start")
	}
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	_, err = plan.(providers.Executor).Exec(t.Context(), []string{"touch", "gone"}, nil, providers.Stdio{In: null, Out: to, Err: to})
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

// What another kernel would not keep, or is not shared with it, is refused.
func TestWhatAVirtualMachineDoesNotShare(t *testing.T) {
	k := inVM(t)
	k.run(t, "sh", "-c", "true") // the control
	refused := func(change func(*task), want string) {
		t.Helper()
		other := *k
		change(&other)
		_, err := other.plan(t, "sh")
		require.ErrorContains(t, err, want)
	}
	refused(func(k *task) { k.Image = "" }, "does not have the programs of this machine")
	door, err := net.Listen("unix", filepath.Join(k.dir, "door"))
	require.NoError(t, err)
	defer door.Close()
	refused(func(k *task) { k.request.Sockets = []string{door.Addr().String()} }, "passes no connections")

	inner := filepath.Join(k.dir, "inner")
	k.write(t, "inner/a", "mine")
	k.request.Files = []profiles.FileFlag{{Path: inner, Access: profiles.Read}}
	plan, err := k.plan(t, "true")
	require.NoError(t, err)
	k.heard.onCreated = func(providers.Resource) {
		assert.NoError(t, os.Rename(inner, inner+"-old"))
		assert.NoError(t, os.Symlink(t.TempDir(), inner))
	}
	_, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
	require.ErrorContains(t, err, "another file than the survey saw", "its numbers are passed on here")

	k.heard.onCreated = nil
	require.NoError(t, os.Remove(inner))
	require.NoError(t, os.Rename(inner+"-old", inner))
	plan, err = k.plan(t, "true")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(inner))
	_, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
	require.ErrorContains(t, err, "does not have each directory that the run shows")
}
