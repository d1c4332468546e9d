package namespaces

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/pccrun/pccrun/internal/procfs"
)

// oomRaise is how much sooner the kernel ends what runs inside than the
// launcher when the machine is out of memory: a fifth of the memory's worth,
// as much as a desktop gives its applications over its session.
const oomRaise = 200

// oomScore reads this process's own adjustment, proc_pid_oom_score_adj(5), and
// returns that of the sandbox.
func oomScore(path string) (int, error) {
	text, err := procfs.Short(path)
	if err != nil {
		return 0, err
	}
	own, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return min(own+oomRaise, 1000), nil
}
