package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage holds docs/network.md to the grammar: each rule of its table is one,
// and nothing of what it says to be refused is.
func TestPage(t *testing.T) {
	data, err := os.ReadFile("../../docs/network.md")
	require.NoError(t, err)
	_, page, ok := strings.Cut(string(data), "\n## Rules\n")
	require.True(t, ok)
	table, refused, ok := strings.Cut(page, "\n### What is refused")
	require.True(t, ok)
	refused, _, ok = strings.Cut(refused, "\n### ")
	require.True(t, ok)

	parsed := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			parse, text := Parse, code[1]
			if flag, port, is := strings.Cut(text, " "); is && flag == "--local" {
				parse, text = ParseLocal, port
			}
			_, err := parse(text)
			require.NoError(t, err, text)
			parsed++
		}
	}
	require.Greater(t, parsed, 20)

	odd := 0
	for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(refused, -1) {
		text := code[1]
		switch {
		case text == "host:3000", text == "*.", text == ".": // what to write, and beginnings
			continue
		case strings.Trim(text, `%@\`) == "":
			text = "a" + text + "b.example"
		}
		_, err := Parse(text)
		require.Error(t, err, text)
		odd++
	}
	require.Greater(t, odd, 8)
}
