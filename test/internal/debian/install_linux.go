// Package debian installs what tests need from the archive of Debian that this machine's apt
// is set up for.
package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A Need is a program on PATH, or a file, and the Debian package that brings it.
type Need struct{ Program, File, Package string }

func (n Need) met() bool {
	if n.File != "" {
		_, err := os.Stat(n.File)
		return err == nil
	}
	_, err := exec.LookPath(n.Program)
	return err == nil
}

// Install brings what is missing, as root on Debian. Elsewhere it returns the packages that
// are missing, for the caller to print.
func Install(ctx context.Context, needs []Need) (missing []string, err error) {
	for _, n := range needs {
		if !n.met() {
			missing = append(missing, n.Package)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return missing, nil
	}
	fmt.Println("installing", strings.Join(missing, " "))
	for _, args := range [][]string{{"update", "-qq"}, append([]string{"install", "-qq", "-y", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("apt-get %s: %w\n%s", args[0], err, out)
		}
	}
	return nil, nil
}
