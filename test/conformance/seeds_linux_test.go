package conformance_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/test/internal/faults"
)

// A recorder has all that a provider was sent.
type recorder struct {
	mu     sync.Mutex
	heads  strings.Builder // addresses and headers
	bodies strings.Builder
	lines  strings.Builder // to pccrun in the sandbox
}

func (c *recorder) take(r *http.Request) *faults.Fault {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(&c.heads, r.Method, r.URL, r.Header)
	c.bodies.Write(body)
	if small, err := gzip.NewReader(bytes.NewReader(body)); err == nil { // Vercel's
		archive := tar.NewReader(small)
		for head, err := archive.Next(); err == nil; head, err = archive.Next() {
			text, _ := io.ReadAll(archive)
			if c.bodies.Write(text); strings.Contains(head.Name, ".pccrun-line-") {
				c.lines.Write(text)
			}
		}
	}
	if text, is := bytes.CutSuffix(body, []byte(inside.FileEnd)); is { // Cloudflare's
		c.lines.Write(text)
	}
	var in struct {
		Data  string                 // Daytona's
		Input struct{ Stdin []byte } // E2B's
	}
	if json.Unmarshal(body, &in) == nil {
		c.lines.WriteString(in.Data + string(in.Input.Stdin))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if m := (&pb.TaskExecStdinWriteRequest{}); strings.HasSuffix(r.URL.Path, "/TaskExecStdinWrite") && unary(r, m) { // Modal's
		c.lines.Write(m.GetData())
	}
	return nil
}

var record = regexp.MustCompile(`(?m)^([DZ]) (\d+) \S+ (\S+)$`)

// stream is what went to pccrun in the sandbox, as it came in there.
func (c *recorder) stream(t *testing.T) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := record.FindAllStringSubmatch(c.lines.String(), -1)
	number := func(m []string) int { n, _ := strconv.Atoi(m[2]); return n }
	slices.SortFunc(list, func(a, b []string) int { return cmp.Compare(number(a), number(b)) })
	var out []byte
	for _, m := range list {
		text, err := base64.StdEncoding.DecodeString(m[3])
		if err == nil && m[1] == "Z" {
			var plain io.Reader
			plain, err = filesync.Decompress(bytes.NewReader(text))
			require.NoError(t, err)
			text, err = io.ReadAll(plain)
		}
		require.NoError(t, err)
		if n := number(m); n <= len(out) { // what comes twice is the same
			out = append(out[:n], text...)
		}
	}
	return string(out)
}

// holds reports whether a text is in another, as it is or in base64.
func holds(in, text string) bool {
	found := strings.Contains(in, text)
	for i, before := range [...]int{0, 2, 3} { // characters that what stands before has a part in
		coded := base64.RawStdEncoding.EncodeToString([]byte("..."[:i] + text))
		if (i+len(text))%3 != 0 {
			coded = coded[:len(coded)-1] // and what stands behind
		}
		found = found || strings.Contains(in, coded[before:])
	}
	return found
}

// files is what the files of a directory hold, by path.
func files(t *testing.T, dir string) map[string]string {
	list := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		list[path] = string(text)
		return err
	}))
	return list
}

// TestSeeds: the home there begins with what a home here begins with, but for the refresh token, and
// nothing of it comes back. Root's shows that nothing of it is kept with a sandbox.
//
//test:root e2b
func TestSeeds(t *testing.T) {
	t.Parallel()
	const access, refresh, theme = "the-access-token-of-it", "the-refresh-token-of-it", "a-theme-of-mine"
	for _, place := range places {
		if place.noProgram != "" {
			continue
		}
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := place.start(t)
			p := newProgram(t, s.environ)
			base := filepath.Dir(p.work)
			home := filepath.Join(base, "home")
			for name, text := range map[string]string{
				".claude/.credentials.json": `{"claudeAiOauth": {"accessToken": "` + access + `", "refreshToken": "` + refresh + `", "expiresAt": 1}}`,
				".claude/settings.json":     `{"theme": "` + theme + `"}`,
				".claude.json":              `{"projects": {"` + p.work + `": {"mine": 1}, "/other": {}}}`,
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
			}
			before := files(t, home)
			run := func(flags ...string) (out, say string, c *recorder) {
				c = &recorder{}
				s.decide(c.take)
				if place.noKeep == "" {
					flags = append(flags, "--keep", "1h")
				}
				code, out, say := p.run(append(append([]string{"--provider", place.name, "--profile", "claude"}, flags...), "--", "sh", "-c",
					`cat ~/.claude/.credentials.json; cat ~/.claude/settings.json ~/.claude.json && stat -c %a ~/.claude ~/.claude/settings.json && test -O ~/.claude.json && ls ~/made;`+
						`for f in .claude/.credentials.json .claude/settings.json .claude.json made; do echo changed >~/$f; done; echo "in $PWD"; echo x >>made`)...)
				require.Equal(t, 0, code, say)
				require.NotContains(t, say, access)
				require.False(t, holds(c.heads.String(), access) || holds(s.made(), access), "an address, or a request to create")
				require.False(t, holds(c.heads.String()+c.bodies.String()+c.stream(t), refresh))
				require.True(t, holds(c.stream(t), theme))
				require.NotContains(t, out, refresh)
				require.Contains(t, out, theme)
				require.Contains(t, out, "\n700\n600\n")
				require.Contains(t, say, "made'", "of an earlier run")
				_, dir, _ := strings.Cut(out, "in ")
				require.Contains(t, out, `"`+strings.TrimSpace(dir)+`": {`, "the workspace as it is called there")
				require.NotContains(t, out, p.work)
				require.Equal(t, before, files(t, home))
				require.NoDirExists(t, filepath.Join(base, "state/pccrun/homes"))
				kept := ""
				for _, id := range s.stand("") {
					for _, text := range files(t, filepath.Dir(s.home(id))) {
						kept += text
					}
				}
				require.Equal(t, credential != nil && place.noKeep == "", strings.Contains(kept, "one\n"), "the control: the workspace")
				for _, text := range files(t, base+"/state") {
					kept += text
				}
				require.NotContains(t, kept, access)
				require.NotContains(t, kept, theme)
				return out, say, c
			}
			const tells = "/.claude/.credentials.json is copied to the provider, without its refresh token"
			out, say, c := run()
			require.Contains(t, out, `"refreshToken": ""`)
			require.Contains(t, out, access)
			require.True(t, holds(c.stream(t), access))
			require.Contains(t, say, tells)
			if place != places[0] {
				return // the rest is not the place's
			}
			if stand := s.stand(""); credential != nil {
				defer func() { require.Equal(t, stand, s.stand(""), "the next run had another sandbox") }()
			}
			out, say, c = run("--no-login")
			require.NotContains(t, out, access)
			require.False(t, holds(c.stream(t), access))
			require.NotContains(t, say, tells)

			_, out, _ = p.run("--provider", place.name, "--profile", "claude", "--dry-run", "--json", "--", "true")
			var d struct {
				Plan struct{ Upload struct{ Home []string } }
			}
			require.NoError(t, json.Unmarshal([]byte(out), &d), out)
			require.Equal(t, []string{home + "/.claude.json", home + "/.claude/.credentials.json", home + "/.claude/settings.json"}, d.Plan.Upload.Home)
			require.NotContains(t, out, access)
		})
	}
}
