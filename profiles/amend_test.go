package profiles

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(path, word, comment string) Edit {
	return Edit{Keys: []string{"filesystem"}, Key: path, Value: word, Comment: comment}
}

func TestAmend(t *testing.T) {
	allow := Edit{Keys: []string{"network", "allow"}, Key: "a.example:22"}
	socket := Edit{Keys: []string{"network", "sockets"}, Key: "/run/x"}
	off := Edit{Keys: []string{"filesystem"}, Key: "~/.ssh", Value: "read", Comment: "a secret", Off: true}
	memory := Edit{Keys: []string{"resources"}, Key: "memory", Value: "2g"}
	pids := Edit{Keys: []string{"resources"}, Key: "pids", Value: "64", Number: true}
	for name, c := range map[string]struct {
		text, base string
		edits      []Edit
		want       string
	}{
		"new": {"", "claude", []Edit{read("~/a", "read", "why"), off, allow, socket, pids}, `{
  "extends": "claude",
  "filesystem": {
    "~/a": "read", // why
    // "~/.ssh": "read", // a secret
  },
  "network": {
    "allow": [
      "a.example:22",
    ],
    "sockets": [
      "/run/x",
    ],
  },
  "resources": {
    "pids": 64,
  },
}
`},
		"no comma, and comments": {"// head\n{\n\t\"filesystem\": {\n\t\t\"/\": \"read\" // root, {all}\n\t\t// last word\n\t}\n}", "", []Edit{read("/x", "write", "")},
			"// head\n{\n\t\"filesystem\": {\n\t\t\"/\": \"read\", // root, {all}\n\t\t// last word\n\t\t\"/x\": \"write\",\n\t}\n}"},
		"one line":         {`{"filesystem": {"/": "read"}, "network": {"allow": []}}`, "", []Edit{read("/x", "write", ""), allow}, "{\"filesystem\": {\"/\": \"read\",\n  \"/x\": \"write\",\n}, \"network\": {\"allow\": [\n  \"a.example:22\",\n]}}"},
		"a block comment":  {"{ \"filesystem\": { \"/\": \"read\" /* a\n b */ } }", "", []Edit{read("/x", "write", "")}, "{ \"filesystem\": { \"/\": \"read\", /* a\n b */ \n  \"/x\": \"write\",\n} }"},
		"what stands":      {"{\n  \"resources\": {\n    \"memory\": \"1g\", // mine\n    \"cpus\": 2\n  }\n}\n", "", []Edit{memory, pids}, "{\n  \"resources\": {\n    \"memory\": \"2g\", // mine\n    \"cpus\": 2,\n    \"pids\": 64,\n  }\n}\n"},
		"the last one":     {"{ \"resources\": { \"memory\": \"1g\" } }", "", []Edit{memory, pids}, "{ \"resources\": { \"memory\": \"2g\",\n  \"pids\": 64,\n} }"},
		"only comments":    {"{\n  \"filesystem\": {\n    \"/\": \"read\"\n  }\n}\n", "", []Edit{off}, "{\n  \"filesystem\": {\n    \"/\": \"read\"\n    // \"~/.ssh\": \"read\", // a secret\n  }\n}\n"},
		"as the last time": {"{\n  \"filesystem\": {\n    // \"~/.ssh\": \"read\", // another reason\n    \"/\": \"read\",\n  }\n}\n", "", []Edit{off}, "{\n  \"filesystem\": {\n    // \"~/.ssh\": \"read\", // another reason\n    \"/\": \"read\",\n  }\n}\n"},
		"a section beside": {"{\n  \"network\": { \"allow\": [\"b\"] },\n}\n", "", []Edit{socket}, "{\n  \"network\": { \"allow\": [\"b\"],\n    \"sockets\": [\n      \"/run/x\",\n    ],\n  },\n}\n"},
	} {
		got, err := Amend("p.jsonc", c.text, c.base, c.edits)
		require.NoError(t, err, name)
		_, err = parseJSONC("p.jsonc", got)
		require.NoError(t, err, name)
		strip := func(s string) string { return strings.ReplaceAll(s, " \n", "\n") }
		require.Equal(t, strip(c.want), strip(got), name)
	}
	for name, text := range map[string]string{"no object": `{"filesystem": null}`, "no list": `{"network": {"allow": "x"}}`, "not JSON": `{`, "a list": `[]`} {
		_, err := Amend("p.jsonc", text, "", []Edit{read("/x", "read", ""), allow})
		require.Error(t, err, name)
	}
	for _, e := range []Edit{read("/x\n", "read", ""), read("/x", "read", "why\n\"/\": \"write\","), read("/x", "\x1b[2J", ""), read("/\u202ex", "read", ""), read("/x\xff", "read", ""),
		{Keys: []string{"resources"}, Key: "pids", Value: "1, \"x\": 2", Number: true}} {
		_, err := Amend("p.jsonc", "", "", []Edit{e})
		require.Error(t, err, e)
	}
}

// Whatever a path and a comment say, what comes out says that and nothing more.
func FuzzAmend(f *testing.F) {
	f.Add("{\n  \"filesystem\": { \"/\": \"read\" }\n}", `/x", "/": "write`, "*/ // why")
	f.Add("", "/*", "\\")
	f.Fuzz(func(t *testing.T, text, path, comment string) {
		before, err := parseJSONC("p", text)
		if err != nil && text != "" {
			return
		}
		out, err := Amend("p", text, "", []Edit{read(path, "read", comment), {Keys: []string{"filesystem"}, Key: path + "2", Value: "read", Comment: comment, Off: true}})
		if err != nil {
			return
		}
		after, err := parseJSONC("p", out)
		require.NoError(t, err)
		got := map[string]string{}
		for _, m := range after.members {
			if m.key == "filesystem" {
				for _, f := range m.value.members {
					got[f.key] = f.value.text
				}
			}
		}
		require.Equal(t, "read", got[path])
		want := 1
		for _, m := range before.members {
			if m.key == "filesystem" {
				for _, f := range m.value.members {
					if f.key != path {
						want++
					}
				}
			}
		}
		require.LessOrEqual(t, len(got), want)
		_, standing := got[path+"2"]
		require.True(t, !standing || strings.Contains(text, "2"))
	})
}
