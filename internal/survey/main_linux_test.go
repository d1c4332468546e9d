package survey

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const aliasesVariable = "PCCRUN_SURVEY_TEST_ALIASES"

// This program is started again in a mount namespace of its own.
func TestMain(m *testing.M) {
	if root := os.Getenv(aliasesVariable); root != "" {
		if err := otherMounts(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// self is this test binary, which prints what is covered of other mounts.
func self(t *testing.T, root string) *exec.Cmd {
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), aliasesVariable+"="+root)
	if os.Getenv("GOCOVERDIR") == "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+t.TempDir())
	}
	return cmd
}
