//go:build unix

package clients

import (
	"fmt"
	"io/fs"
	"os/exec"
	"syscall"
)

// stampOf tells one state of a file from another.
func stampOf(info fs.FileInfo) string {
	st, _ := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Dev, ":", st.Ino, ":", info.Size(), ":", info.ModTime().UnixNano(), ":", info.Mode())
}

// alone puts a command into a process group of its own, and has the whole of
// it killed when its time is up.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
