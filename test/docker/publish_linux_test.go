package docker_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/host"
)

// TestPublish looks at a server in a container by a port of this machine, and finds another port of it shut.
func TestPublish(t *testing.T) {
	needEngine(t)
	eachRuntime(t, func(t *testing.T, k *task) {
		port := host.FreePort(t)
		k.write(t, "page.txt", "hello")
		c, end := k.begin(t, "--publish "+port+":8123", "exec python3 -u -m http.server --bind 127.0.0.1 8123")
		get := func() string {
			r, err := http.Get("http://127.0.0.1:" + port + "/page.txt")
			if err != nil {
				return ""
			}
			defer r.Body.Close()
			text, _ := io.ReadAll(r.Body)
			return string(text)
		}
		text := ""
		for late := await.Deadline(); !strings.Contains(text, "hello") && time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
			text = get()
		}
		require.NoError(t, c.Process.Kill())
		_, _, errs := end()
		require.Contains(t, text, "hello", errs)
		require.Empty(t, get(), "the control: it ended with the run")
	})
}
