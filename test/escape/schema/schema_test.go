// Package schema holds the SARIF that test/escape writes to the schema of OASIS.
package schema

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/escape"
)

// The test program is its own payload and helper, as in test/escape.
func TestMain(m *testing.M) {
	if code, is := escape.Hidden(os.Args[1:]); is {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "__escape" {
		os.Exit(escape.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(125) // a probe calls verbs that there are none of: it is not to run all tests
	}
	os.Exit(m.Run())
}

const url = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// load is the schema: testdata/README.md says where it comes from.
func load(t *testing.T) *jsonschema.Schema {
	text, err := os.ReadFile("../testdata/sarif-schema-2.1.0.json")
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource(url, parse(t, text)))
	schema, err := compiler.Compile(url)
	require.NoError(t, err)
	return schema
}

func parse(t *testing.T, text []byte) any {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return doc
}

// TestFiles looks at the files that TestSARIFText of test/escape holds its output to.
func TestFiles(t *testing.T) {
	schema := load(t)
	for _, name := range []string{"full", "ended", "empty", "none"} {
		text, err := os.ReadFile("../testdata/" + name + ".sarif")
		require.NoError(t, err)
		log := parse(t, text)
		require.Equal(t, url, log.(map[string]any)["$schema"], "what the output says of itself")
		require.NoError(t, schema.Validate(log), name)
	}
	text, err := os.ReadFile("../testdata/full.sarif")
	require.NoError(t, err)
	for old, wrong := range map[string]string{`"version": "2.1.0"`: `"version": "2.1"`, `"kind": "open"`: `"kind": "ajar"`, `"ruleId"`: `"rule"`, `"startTimeUtc": "19`: `"startTimeUtc": "x19`} {
		require.Contains(t, string(text), old)
		require.Error(t, schema.Validate(parse(t, bytes.Replace(text, []byte(old), []byte(wrong), 1))), "%s: the schema is not asked", wrong)
	}
}

// TestCommand looks at what the verb writes at its end.
func TestCommand(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "out.sarif")
	cmd := exec.Command("/proc/self/exe", "__escape", "--wrap", "env --", "--id", "FS-001,KS-040", "--report", file)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(file)
	require.NoError(t, readErr, "%v: %s", err, out)
	require.Contains(t, string(text), `"ruleId": "FS-001"`)
	require.NoError(t, load(t).Validate(parse(t, text)))
}
