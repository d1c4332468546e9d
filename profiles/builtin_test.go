package profiles

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scriptsFile says which scripts tools take from a repository; its entries stand in the
// default profile, between these lines.
const (
	scriptsFile  = "builtin/scripts.tsv"
	defaultFile  = "builtin/default.jsonc"
	scriptsBegin = "      // scripts.tsv: what tools run that they find in a repository\n"
	scriptsEnd   = "      // end of scripts.tsv\n"
)

// withScripts returns the text of the default profile with the entries that scriptsFile has.
func withScripts(t *testing.T, text string) string {
	data, err := os.ReadFile(scriptsFile)
	require.NoError(t, err)
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, columns, 3, line)
		names := strings.Fields(columns[0])
		require.NotEmpty(t, names, line)
		require.NotEmpty(t, columns[1], line)
		require.NotEmpty(t, columns[2], line)
		b.WriteString("      ")
		for _, name := range names {
			fmt.Fprintf(&b, "%q, ", name)
		}
		fmt.Fprintf(&b, "// %s\n", columns[1])
	}
	before, rest, begins := strings.Cut(text, scriptsBegin)
	_, after, ends := strings.Cut(rest, scriptsEnd)
	require.True(t, begins && ends, defaultFile)
	return before + scriptsBegin + b.String() + scriptsEnd + after
}

var update = flag.Bool("update", false, "write "+defaultFile+" anew")

// The default profile has the entries of scriptsFile.
func TestScriptsStandInTheDefaultProfile(t *testing.T) {
	text, err := os.ReadFile(defaultFile)
	require.NoError(t, err)
	if scripts := withScripts(t, string(text)); *update {
		require.NoError(t, os.WriteFile(defaultFile, []byte(scripts), 0o644))
	} else {
		assert.Equal(t, scripts, string(text), "go generate ./profiles brings scripts.tsv into it")
	}
}

// The rules of a built-in profile are taken as they stand, so none may be a second of
// its pattern; control: two of a profile file's are one.
func TestBuiltinsProtectNothingTwice(t *testing.T) {
	for _, name := range Builtin() {
		v, err := parseBuiltin(name)
		require.NoError(t, err)
		l, err := decode(&scope{home: "/home/u", workspace: "/home/u/w"}, "built-in "+name, v)
		require.NoError(t, err)
		seen := map[string]Origin{}
		for _, r := range l.protect {
			assert.NotContains(t, seen, r.Pattern, "%s and %s", r.Origin, seen[r.Pattern])
			seen[r.Pattern] = r.Origin
		}
	}
	twice := []ProtectRule{{Pattern: "x", Origin: Origin{Source: "/p"}}, {Pattern: "x", Review: true, Origin: Origin{Source: "/p"}}}
	assert.Equal(t, twice[1:], override(nil, twice))
}
