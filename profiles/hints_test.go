package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// To write what is there, its own flag is named; to make, move or take away a name, that of the
// directory, but for a home and the workspace, which are not opened as a whole. A flag that shows
// the same path is to be left out, since two for one path are refused.
func TestFlagsOfWriting(t *testing.T) {
	shown := Origin{Source: "flag", Key: "--read"}
	p := &Policy{
		Home: "/h", Workspace: "/h/ws", Homes: []string{"/second"},
		Files: []FileRule{{Path: "/h/ws", Access: Write}, {Path: "/h/out", Access: Read, Origin: shown}, {Path: "/h/f", Access: Read, Origin: shown}, {Path: "/srv/read", Access: Read}},
	}
	for path, want := range map[string][3]string{ // to write it, to make it as a file, and to move it or make it as a directory
		"/h/out/f":    {"--write /h/out/f", "--write /h/out in place of --read /h/out", "--write /h/out in place of --read /h/out"},
		"/h/out/d/f":  {"--write /h/out/d/f", "--write /h/out/d", "--write /h/out/d"},
		"/h/out/a b":  {"--write '/h/out/a b'", "--write /h/out in place of --read /h/out", "--write /h/out in place of --read /h/out"},
		"/h/f":        {"--write /h/f in place of --read /h/f", "touch /h/f and --write /h/f", ""},
		"/h/new":      {"--write /h/new", "touch /h/new and --write /h/new", ""},
		"/h/ws/new":   {"--write /h/ws/new", "touch /h/ws/new and --write /h/ws/new", ""},
		"/second/new": {"--write /second/new", "touch /second/new and --write /second/new", ""},
		"/srv/read/f": {"--write /srv/read/f", "--write /srv/read", "--write /srv/read"}, // a profile shows it
	} {
		require.Equal(t, want, [3]string{p.WriteFlag(path), p.MakeFlag(path, true), p.MakeFlag(path, false)}, path)
	}
}
