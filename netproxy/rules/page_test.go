package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage holds docs/network.md to the grammar: each rule of its list is one,
// and nothing of what it says to be refused is.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/network.md")
	require.NoError(t, err)
	_, page, ok := strings.Cut(string(data), "\n## Rules\n")
	require.True(t, ok)
	list, refused, ok := strings.Cut(page, "Ambiguous names")
	require.True(t, ok)
	refused, _, ok = strings.Cut(refused, "are refused")
	require.True(t, ok)

	parsed := 0
	grammar, columns := regexp.MustCompile(`^\w+ +=`), regexp.MustCompile(` {2,}`)
	for line := range strings.Lines(list) {
		line, indented := strings.CutPrefix(line, "    ")
		if !indented || grammar.MatchString(line) {
			continue
		}
		row := columns.Split(line, -1) // the last says what the others mean
		require.Greater(t, len(row), 1, line)
		for _, text := range row[:len(row)-1] {
			_, err := Parse(text)
			require.NoError(t, err, text)
			parsed++
		}
	}
	require.Greater(t, parsed, 15)

	codes := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(refused, -1)
	require.Greater(t, len(codes), 1)
	for _, code := range codes {
		_, err := Parse(code[1])
		require.Error(t, err, code[1])
	}
	for _, odd := range []string{"0x7f.1", "2130706433", "a%b.example", "a@b.example", `a\b.example`, "a b.example", "a..example",
		"a.*.example", "*.com", ".co.uk", "localhost:3000", "2606:4700::", "a.example:0", "a.example:080", "10.20.0.1/16"} {
		_, err := Parse(odd)
		require.Error(t, err, odd)
	}
}
