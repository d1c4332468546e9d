package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage holds docs/network.md to the grammar: what its list of rules says is taken, and what it says is refused is.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/network.md")
	require.NoError(t, err)
	_, page, ok := strings.Cut(string(data), "\n## Rules\n")
	require.True(t, ok)
	page, _, ok = strings.Cut(page, "\n### ")
	require.True(t, ok)

	parsed := 0
	for _, row := range regexp.MustCompile(`(?m)^    (\S.*?)  +[^=\s].*$`).FindAllStringSubmatch(page, -1) {
		for _, text := range regexp.MustCompile(` {2,}`).Split(row[0][4:], -1) {
			if strings.Contains(row[0], " = ") || strings.HasSuffix(row[0], "  "+text) { // the grammar, and what a rule means
				continue
			}
			_, err := Parse(text)
			require.NoError(t, err, text)
			parsed++
		}
	}
	require.Greater(t, parsed, 15)

	for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(page[strings.Index(page, "Names to be read in two ways"):], -1) {
		_, err := Parse(code[1])
		require.Error(t, err, code[1])
	}
	for _, odd := range []string{"0x7f.1", "2130706433", "0177.0.0.1", "a%b.example", "a@b.example", `a\b.example`, "a b.example", "a..example",
		"a.*.example", "*.com", ".co.uk", "*.github.io", "localhost:3000", "2606:4700::", "a.example:0", "a.example:080", "10.20.0.1/16"} {
		_, err := Parse(odd)
		require.Error(t, err, odd)
	}
}
