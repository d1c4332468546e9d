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

// And it lists what moreFile protects, between these.
const (
	moreFile  = "builtin/protect-more.jsonc"
	moreBegin = "      // protect-more.jsonc: its names, which this profile lists and that one protects\n"
	moreEnd   = "      // end of protect-more.jsonc\n"
)

// withLists returns the text of the default profile with the entries that scriptsFile and moreFile have.
func withLists(t *testing.T, text string) string {
	more, err := os.ReadFile(moreFile)
	require.NoError(t, err)
	_, rest, begins := strings.Cut(string(more), "    \"deny\": [\n")
	names, _, ends := strings.Cut(rest, "    ],\n")
	require.True(t, begins && ends, moreFile)
	var list strings.Builder
	for line := range strings.Lines(names) {
		if entries, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " //"); strings.TrimSpace(entries) != "" {
			list.WriteString(entries + "\n")
		}
	}
	return between(t, between(t, text, scriptsBegin, scripts(t), scriptsEnd), moreBegin, list.String(), moreEnd)
}

// between returns a text with other lines between two.
func between(t *testing.T, text, begin, lines, end string) string {
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	require.True(t, begins && ends, begin)
	return before + begin + lines + end + after
}

// scripts returns the entries of scriptsFile as lines of a profile.
func scripts(t *testing.T) string {
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
	return b.String()
}

var update = flag.Bool("update", false, "write "+defaultFile+" anew")

// The default profile has the entries of scriptsFile and moreFile.
func TestListsStandInTheDefaultProfile(t *testing.T) {
	text, err := os.ReadFile(defaultFile)
	require.NoError(t, err)
	if lists := withLists(t, string(text)); *update {
		require.NoError(t, os.WriteFile(defaultFile, []byte(lists), 0o644))
	} else {
		assert.Equal(t, lists, string(text), "go generate ./profiles brings the lists into it")
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
		for i := range l.entries {
			if e := &l.entries[i]; keys[e.key].kind == holdsProtected {
				assert.NotContains(t, seen, e.text, "%s and %s", e.origin, seen[e.text])
				seen[e.text] = e.origin
			}
		}
	}
	twice := &layer{entries: []entry{{key: keyProtectDeny, text: "x"}, {key: keyProtectReview, text: "x"}}}
	b := newBuilder(&Policy{}, []*layer{twice})
	b.apply(twice)
	b.fill()
	assert.Equal(t, []ProtectRule{{Pattern: "x", Review: true}}, b.policy.Protect)
}
