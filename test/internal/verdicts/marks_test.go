package verdicts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMarks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a

// TestA is as whom.
//
//test:root
func TestA(t *testing.T) {}

//test:root ^(git|npm)$
//test:check
func TestB(t *testing.T) {}

// TestC speaks of //test:root, which is no mark.
func TestC(t *testing.T) {}

//test:rooted
func TestD(t *testing.T) {}
`), 0o600))
	root, err := Root.Tests(dir)
	require.NoError(t, err)
	require.Equal(t, "^TestA$/(.*)|^TestB$/(^(git|npm)$)", root)
	check, err := Check.Tests(dir)
	require.NoError(t, err)
	require.Equal(t, "^TestB$/(.*)", check)
	none, err := Root.Tests(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte("pack"), 0o600))
	_, err = Root.Tests(dir)
	require.Error(t, err)
}

// What Tests returns is understood by package testing: a test without subtests runs by it, and
// of others the subtests that match.
func TestPatternOfMarks(t *testing.T) {
	if os.Getenv("PCCRUN_TEST_PATTERN") != "" {
		t.Run("git", func(t *testing.T) {})
		t.Run("svn", func(t *testing.T) { t.Fatal("it matches not") })
		return
	}
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestMarks$/(.*)|^TestPatternOfMarks$/(^(git|npm)$)")
	cmd.Env = append(os.Environ(), "PCCRUN_TEST_PATTERN=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for _, ran := range []string{"--- PASS: TestMarks ", "--- PASS: TestPatternOfMarks/git "} {
		require.Contains(t, string(out), ran)
	}
	require.NotContains(t, string(out), "TestRows")
}
