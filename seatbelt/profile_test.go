package seatbelt

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

const (
	testHome      = "/Users/dev"
	testWorkspace = "/Users/dev/src/project"
)

// policy returns what a command's profile is on a Mac of which nothing else is known.
func policy(t testing.TB, profile string, change func(*profiles.Request)) *profiles.Policy {
	req := profiles.Request{Profile: profile, Workspace: testWorkspace, Host: profiles.Host{Home: testHome, Elsewhere: true, Memory: 16 << 30}}
	if change != nil {
		change(&req)
	}
	p, err := profiles.Resolve(req)
	require.NoError(t, err)
	return p
}

func TestDump(t *testing.T) {
	d, err := Profile(policy(t, "claude", nil), Example(testHome))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("/tmp/claude.sb", []byte(d.Text), 0o644))
	t.Log(len(d.Text), d.Params)
	_, err = Parse(d.Text, d.Params)
	require.NoError(t, err)
}
