//go:build linux || darwin

package profiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a project's environment names is not read as policy in silence, and not
// at all in a repository.
func TestStrayPolicy(t *testing.T) {
	w := newWorld(t)
	const opens = `{"extends": "default", "filesystem": {"~/secret": "write"}}`
	w.write("~/secret", "x")
	secret := w.home + "/secret"
	inner := w.dir + "/sub"
	require.NoError(t, os.MkdirAll(inner+"/.git", 0o755))
	outer := filepath.Dir(w.home) + "/plain"
	for _, base := range []string{w.dir, outer} {
		w.write(base+"/cfg/pccrun/profiles/default.jsonc", opens)
		w.write(base+"/h/.parallel-cc/sandbox.json", `{"providers": {"native": {"filesystem": {"allowRead": ["`+secret+`"]}}}}`)
	}
	run := func(environ ...string) *Policy {
		return w.policy(func(r *Request) {
			r.Host.Cwd = inner
			r.Host.Environ = append(environ, r.Host.Environ...)
		})
	}
	said := func(p *Policy) string { return strings.Join(p.Warnings, "\n") }
	require.Less(t, access(run(), secret), Read)

	p := run("XDG_CONFIG_HOME=" + w.dir + "/cfg")
	require.Less(t, access(p, secret), Read)
	require.Contains(t, said(p), w.dir+"/cfg/pccrun: ignored, because it is in the git repository "+w.dir)
	p = run("XDG_CONFIG_HOME=" + outer + "/cfg")
	require.Equal(t, Write, access(p, secret), "control: elsewhere it counts")
	require.Contains(t, said(p), outer+"/cfg/pccrun: used instead of "+w.home+"/.config/pccrun")

	p = run("HOME=" + w.dir + "/h")
	require.Less(t, access(p, secret), Read)
	require.Contains(t, said(p), "sandbox.json: ignored, because it is in the git repository "+w.dir)
	p = run("HOME=" + outer + "/h")
	require.Equal(t, Read, access(p, secret), "control: elsewhere it counts")
	require.Contains(t, said(p), "/h/.parallel-cc/sandbox.json: used instead of "+w.home+"/.parallel-cc")

	w.write("~/.config/pccrun/profiles/default.jsonc", opens)
	require.NoError(t, os.Mkdir(w.home+"/.git", 0o755))
	p = run("XDG_CONFIG_HOME=" + w.home + "/.config")
	require.Equal(t, Write, access(p, secret), "where it would be anyway, in a home that is a repository")
	require.NotContains(t, said(p), "read")
}

// A workspace that was reached by a link is named: a prompt shows the link.
func TestWorkspaceByLink(t *testing.T) {
	w := newWorld(t)
	real := w.home + "/other"
	require.NoError(t, os.Mkdir(real, 0o755))
	link := w.dir + "/pkg"
	require.NoError(t, os.Symlink(real, link))
	said := "the workspace is " + real + ": " + link + " leads there by a link"
	p := w.policy(func(r *Request) { r.Workspace = "pkg" })
	require.Contains(t, p.Warnings, said)
	p = w.policy(func(r *Request) { r.Host.Cwd, r.Host.Environ = real, append(r.Host.Environ, "PWD="+link) })
	require.Contains(t, p.Warnings, said)
	for _, pwd := range []string{real, w.dir, "pkg", ""} {
		p = w.policy(func(r *Request) { r.Host.Cwd, r.Host.Environ = real, append(r.Host.Environ, "PWD="+pwd) })
		require.Empty(t, p.Warnings, pwd)
	}
}

// A variable leads pccrun to other directories, and takes from those of the home in the user database nothing: the record
// of what runs could write lies there, and the user's proxies and authorities.
func TestOwnDirectoriesOfTheUserDatabase(t *testing.T) {
	w := newWorld(t)
	for _, vars := range [][]string{nil, {"XDG_STATE_HOME=" + w.home + "/s", "XDG_CONFIG_HOME=" + w.home + "/c", "XDG_CACHE_HOME=" + w.home + "/k"}} {
		p := w.policy(func(r *Request) {
			r.Host.Home, r.Host.Environ = w.home, append(r.Host.Environ, vars...)
			r.Files = append(r.Files, FileFlag{Path: w.home, Access: Write})
		})
		require.Equal(t, Write, access(p, w.home+"/.local/x"), "control")
		for _, dir := range []string{"/.local/state/pccrun", "/.config/pccrun", "/.cache/pccrun"} {
			require.Equal(t, Hide, access(p, w.home+dir))
			_, ok := p.Protected(w.home + dir)
			require.True(t, ok, dir)
		}
	}
}
