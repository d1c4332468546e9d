package conformance_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/test/internal/daytona"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/host"
)

// keeps runs a script in a session of its own that keeps its sandbox for an hour, and returns what it
// printed, what it changed and how many bytes went up.
func (k *task) keeps(script string) (out string, changed []string, bytes int64) {
	k.t.Helper()
	home := sessions.In(k.state)
	s := home.Begin(sessions.Info{})
	dir, err := s.Dir()
	require.NoError(k.t, err)
	k.session, k.keep, k.label = dir, time.Hour, strings.ToLower(rand.Text())
	k.heard.warnings, k.heard.created = nil, nil
	before := k.received()
	o := k.sh(script)
	changed = k.changed()
	for _, r := range k.heard.created {
		require.NoError(k.t, s.Update(func(i *sessions.Info) { i.Resource = &r }))
		if !r.Until.IsZero() {
			s.Keep(sessions.KeepSandbox)
		}
	}
	require.NoError(k.t, s.End(0))
	return o.out, changed, k.received() - before
}

// standing are the sessions whose sandboxes stand.
func (k *task) standing() (list []sessions.Entry) {
	all, err := sessions.In(k.state).List()
	require.NoError(k.t, err)
	for _, e := range all {
		if e.Standing {
			list = append(list, e)
		}
	}
	return list
}

// TestKept: a run takes the sandbox that another kept.
//
//test:root
func TestKept(t *testing.T) {
	t.Parallel()
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if k := newTask(t, p); p.noKeep != "" {
				k.keep = time.Hour
				require.ErrorContains(t, k.run("true").err, p.noKeep)
				return
			}
			kept(t, newTask(t, p))
		})
	}
}

// What differs goes up, what the other left and did not bring is undone, and no change of it is this run's.
func kept(t *testing.T, k *task) {
	k.state = t.TempDir()

	// Where the command was not kept from what the next run trusts, no sandbox stands.
	k.request.Nested = true
	k.keeps("true")
	why := "the command may have changed pccrun itself there"
	if credential == nil {
		why = "pccrun is not root there"
	}
	require.True(t, k.warned("is not kept: "+why), "%q", k.heard.warnings)
	require.Empty(t, k.standing())
	k.nothingLeft()
	if credential == nil {
		return
	}

	k.request.Nested = false
	k.write("large", strings.Repeat(rand.Text(), 2000))
	k.write(".gitignore", "*.o\ncache/\n")
	k.write("removed.txt", "x\n")
	const first = "echo theirs > a.txt; echo x > made; echo o > x.o; mkdir -p cache/.git; echo c > cache/c; rm -r sub; ln -s cache sub; mkdir .git; chmod 600 large; ln a.txt twin"
	_, changed, all := k.keeps(first)
	require.Contains(t, changed, "A made")
	require.Contains(t, changed, "T sub")
	require.True(t, k.warned("kept: sandbox"), "%q", k.heard.warnings)
	require.True(t, k.warned("an hour until"), "%q", k.heard.warnings)
	one := k.stand("running")
	require.Len(t, one, 1)
	require.Len(t, k.standing(), 1)
	require.Equal(t, one[0], k.standing()[0].Resource.ID)

	// The change set is never applied.
	k.write("sub/b.txt", "two\nthree\n")
	require.NoError(t, os.Remove(filepath.Join(k.dir, "removed.txt")))
	out, changed, second := k.keeps("cat a.txt sub/b.txt x.o cache/c; stat -c %a large; ls -A; echo more >> a.txt; echo new > cache/new; rm x.o")
	require.Equal(t, "one\ntwo\nthree\no\nc\n644\n.gitignore\na.txt\ncache\nlarge\nsub\nx.o\n", out)
	require.Equal(t, []string{"M a.txt"}, changed)
	require.Equal(t, one, k.stand(""), "a second one was made")
	require.LessOrEqual(t, second*100, all, "bytes of the second upload, and of the first")
	require.Len(t, k.standing(), 1, "the first session's is the second's now")
	require.Equal(t, 2, strings.Count(k.made(), providers.LabelKey))

	// Errors on the way to it cost neither it nor a file.
	k.fault(broken, cutExec)
	out, changed, _ = k.keeps("cat a.txt; ls -A; echo more >> a.txt")
	require.Equal(t, "one\n.gitignore\na.txt\ncache\nlarge\nsub\n", out)
	require.Equal(t, []string{"M a.txt"}, changed)
	require.Equal(t, one, k.stand("running"))
	k.fault()

	// What another policy lets a command see, this one's command never met.
	k.request.Files = []profiles.FileFlag{{Path: filepath.Join(k.dir, "large"), Access: profiles.Hide}}
	out, _, _ = k.keeps("ls -A")
	require.Equal(t, ".gitignore\na.txt\nsub\n", out)
	require.Len(t, k.stand("running"), 2)
	k.request.Files = nil

	// One that is gone, or over its time, is not used.
	require.NoError(t, k.provider.Destroy(t.Context(), providers.Resource{ID: one[0]}))
	out, _, _ = k.keeps("ls -A")
	require.Equal(t, ".gitignore\na.txt\nlarge\nsub\n", out)
	require.True(t, k.warned("is not used again, and a new one is made"), "%q", k.heard.warnings)
	var late sessions.Entry
	for _, e := range k.standing() {
		if e.Resource.ID == k.heard.created[len(k.heard.created)-1].ID {
			late = e
		}
	}
	dir, err := sessions.In(k.state).Open(late.ID)
	require.NoError(t, err)
	defer dir.Close()
	text, err := dir.ReadFile(sessions.KeptName)
	require.NoError(t, err)
	var record map[string]any
	require.NoError(t, json.Unmarshal(text, &record))
	record["resource"].(map[string]any)["until"] = time.Now().Add(-time.Second)
	text, err = json.Marshal(record)
	require.NoError(t, err)
	require.NoError(t, dir.WriteFile(sessions.KeptName, text, 0o600))
	k.keeps("true")
	require.True(t, k.warned("its time is over"), "%q", k.heard.warnings)
	require.NotContains(t, k.stand(""), late.Resource.ID)
	require.Len(t, k.stand(""), 2)
	for _, e := range k.standing() {
		require.NoError(t, k.provider.Destroy(t.Context(), *e.Resource))
	}
	k.nothingLeft()
}

// TestChoices has the program ask for images, sizes and regions, and says what it makes before anything goes up.
//
//test:root
func TestChoices(t *testing.T) {
	t.Parallel()
	e2bServer, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e2bServer.Stop()) })
	daytonaServer, err := daytona.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, daytonaServer.Stop()) })
	p := newProgram(t, append(e2bServer.Environ(), daytonaServer.Environ()...))
	for _, c := range []struct {
		flags string
		code  int
		says  string
	}{
		{"e2b", 0, `e2b, base, 2cpu,512m, \$0\.109 an hour \(price of 2026-\d\d\), 4 bytes to upload`},
		{"e2b --image large --size 4cpu", 0, `e2b, large, its size by the template, a price that is not known(?s:.*)the sandbox has 4cpu,4g: \$0\.266 an hour`},
		{"e2b --e2b-template large --size 8cpu", 125, "size 8cpu: the sandbox has 4cpu,4g"},
		{"e2b --size 4cpu", 125, "hint: --image names another"},
		{"e2b --region eu", 125, "region eu: nobody can choose"},
		{"e2b --daytona-target eu", 125, "flag --daytona-target: the provider is e2b"},
		{"daytona --size 2cpu,1.5g --region eu", 0, `daytona, 2cpu,2g, eu, \$0\.133 an hour`},
		{"daytona --image debian:12 --size 2cpu,4g", 0, `daytona, debian:12, 2cpu,4g, \$`},
		{"daytona --image debian:12", 0, `daytona, debian:12, 1cpu,1g, \$0\.0666 an hour`},
		{"daytona --image own", 0, `daytona, own, its size by the provider, a price that is not known(?s:.*)the sandbox has 1cpu,1g: \$0\.0666 an hour`},
		{"daytona --size 5cpu", 125, "size 5cpu: the largest sandbox has 4cpu,8g"},
	} {
		words := strings.Fields("--events fd:1 --provider " + c.flags + " -- true")
		code, out, say := p.run(words...)
		require.Equal(t, c.code, code, "%s: %s", c.flags, say)
		require.Regexp(t, c.says, say, c.flags)
		require.Equal(t, c.code == 0, strings.Contains(out, `"price_usd":`), "%s: %s", c.flags, out)
		require.Empty(t, e2bServer.Sandboxes(""))
		require.Empty(t, daytonaServer.Sandboxes(""))
	}
}

// TestPreview looks at a server of the command's by a port of this machine, with a token that no record holds, and finds the
// port shut without a token.
//
//test:root
func TestPreview(t *testing.T) {
	t.Parallel()
	if credential == nil { // a sandbox that is no machine has this machine's ports
		return
	}
	e2bServer, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e2bServer.Stop()) })
	daytonaServer, err := daytona.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, daytonaServer.Stop()) })
	p := newProgram(t, append(e2bServer.Environ(), daytonaServer.Environ()...))
	for _, provider := range []string{"e2b", "daytona"} {
		port := host.FreePort(t)
		c := p.command("--provider", provider, "--events", filepath.Join(p.work, "../events"), "--publish", port+":8123", "--", "python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "8123")
		var say bytes.Buffer
		c.Stderr = &say
		require.NoError(t, c.Start())
		var text []byte
		for end := await.Deadline(); len(text) == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if r, err := http.Get("http://127.0.0.1:" + port + "/a.txt"); err == nil {
				if r.StatusCode == http.StatusOK {
					text, _ = io.ReadAll(r.Body)
				}
				r.Body.Close()
			}
		}
		other, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+"/a.txt", nil)
		require.NoError(t, err)
		other.Host = "rebound.example:" + port // a name that its owner has lead to this machine
		refused, err := http.DefaultClient.Do(other)
		if err == nil {
			refused.Body.Close()
		}
		require.NoError(t, c.Process.Signal(os.Interrupt))
		_ = c.Wait()
		require.Equal(t, "one\n", string(text), say.String())
		require.NoError(t, err)
		require.Equal(t, http.StatusForbidden, refused.StatusCode)
		require.Contains(t, say.String(), "port 8123: http://localhost:"+port+" leads to ")
		require.Contains(t, say.String(), "private: pccrun adds the sandbox's token")
		recorded, err := os.ReadFile(filepath.Join(p.work, "../events"))
		require.NoError(t, err)
		for _, secret := range []string{"traffic-", "preview-0"} {
			require.NotContains(t, say.String()+string(recorded), secret)
		}
	}
}

// TestKeptProgram has the program keep sandboxes, and list and end them.
//
//test:root
func TestKeptProgram(t *testing.T) {
	t.Parallel()
	server, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	p := newProgram(t, server.Environ())
	for flag, want := range map[string]string{"30s": "want minutes, from 1m to 24h", "25h": "want minutes", "x": "want minutes", "1h": "the provider is native, which has no sandbox to be kept"} {
		provider := "e2b"
		if flag == "1h" {
			provider = "native"
		}
		code, _, say := p.run("--provider", provider, "--keep", flag, "--", "true")
		require.Equal(t, 125, code, say)
		require.Contains(t, say, want)
	}
	keeps := []string{"--provider", "e2b", "--keep", "1h", "--", "sh", "-c", "cat a.txt; echo x >> a.txt"}
	code, out, say := p.run(keeps...)
	require.Equal(t, 0, code, say)
	require.Equal(t, "one\n", out)
	if credential == nil {
		require.Contains(t, say, "the sandbox is not kept")
		require.Empty(t, server.Sandboxes(""))
		return
	}
	require.Regexp(t, `kept: sandbox \S+ costs \$0\.109 an hour until \d\d:\d\d; end it: pccrun kill `, say)
	one := server.Sandboxes("running")
	require.Len(t, one, 1)
	listed := func(want int) string {
		_, out, _ := p.run("ps")
		require.Equal(t, want, strings.Count(out, "kept until "), out)
		_, out, _ = p.run("ps", "--json")
		require.Equal(t, want, strings.Count(out, `"usd_per_hour"`), out)
		return say[strings.LastIndex(say, "pccrun kill ")+len("pccrun kill "):]
	}
	listed(1)
	code, _, gc := p.run("gc")
	require.Equal(t, 0, code, gc)
	require.Contains(t, gc, "its sandbox is kept until ")
	require.Equal(t, one, server.Sandboxes("running"))

	code, out, say = p.run(keeps...)
	require.Equal(t, 0, code, say)
	require.Equal(t, "one\n", out, "the change was not applied")
	require.Equal(t, one, server.Sandboxes(""))
	id, _, _ := strings.Cut(listed(1), "\n")
	code, _, killed := p.run("kill", id)
	require.Equal(t, 0, code, killed)
	require.Empty(t, server.Sandboxes(""))
	listed(0)

	code, _, say = p.run(keeps...)
	require.Equal(t, 0, code, say)
	_, out, _ = p.run("gc", "--all")
	require.Contains(t, out, "the sandbox e2b ")
	require.Empty(t, server.Sandboxes(""))
	listed(0)
}
