//go:build unix

package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/workspace"
)

// maxGit bounds what git may print of all that it is asked at the end of a run.
const maxGit = 64 << 20

var errGitMuch = fmt.Errorf("git prints more than %d MiB: %w", maxGit>>20, workspace.ErrTooMuch)

// thisProgram returns where this program lies.
func thisProgram() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// gitHome makes a home for git that nothing else is in.
func gitHome() (home string, err error) {
	home, err = os.MkdirTemp("", "pccrun-git-")
	if err != nil { // root's, and this was given up
		home, err = os.MkdirTemp("/tmp", "pccrun-git-")
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(home, "w"), 0o700)
	}
	return home, err
}

// withGit is a command in a sandbox of its own, which reads repositories, writes nothing, and has no network.
func withGit(home, patience string, shown []string, argv ...string) (*exec.Cmd, error) {
	self, err := thisProgram()
	args := []string{"run", "-q", "--workspace", filepath.Join(home, "w"), "--timeout", patience}
	// The working tree that a configuration names is not shown, and not needed: an empty directory stands for it.
	for _, env := range []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_WORK_TREE=."} {
		args = append(args, "--env", env)
	}
	slices.Sort(shown)
	for _, path := range slices.Compact(shown) {
		args = append(args, "--read", path)
	}
	cmd := exec.Command(self, slices.Concat(args, []string{"--"}, argv)...)
	cmd.Args[0] = "pccrun"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home + "/state", "XDG_CONFIG_HOME=" + home + "/config", "LC_ALL=C"}
	cmd.Dir = home
	return cmd, err
}

// askGit has git answer in a sandbox of its own: it reads the repositories, writes nothing, and has no network.
func askGit(questions []workspace.GitQuestion) []workspace.GitAnswer {
	if _, err := exec.LookPath("git"); err != nil {
		return nil
	}
	home, err := gitHome()
	defer os.RemoveAll(home)
	answers := make([]workspace.GitAnswer, len(questions))
	if err == nil {
		err = askGitIn(home, questions, answers)
	}
	for i := range answers {
		if answers[i].Text == nil && answers[i].Err == nil {
			answers[i].Err = err
		}
	}
	return answers
}

// gitPatience is how long git may take for all that it is asked.
func gitPatience() string {
	if runtime.GOOS == "darwin" {
		return "10s" // xcrun looks for git, and cannot keep what it has found
	}
	return "2s"
}

// exportHistory has git write the last commits of a repository, as git-fast-export(1) does, in the same way.
func exportHistory(ctx context.Context, git, common string, commits int, to io.Writer) error {
	home, err := gitHome()
	defer os.RemoveAll(home)
	if err != nil {
		return err
	}
	cmd, err := withGit(home, "5m", []string{git, common}, "git", "-c", "core.quotePath=true", "--git-dir="+git, "fast-export", "--use-done-feature", fmt.Sprintf("--max-count=%d", commits), "HEAD")
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = to, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a sandbox for git: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return cmp.Or(ctx.Err(), errors.New(firstLine(said.String())))
	}
	return nil
}

// askGitIn starts the sandbox, with a home that nothing else is in.
func askGitIn(home string, questions []workspace.GitQuestion, answers []workspace.GitAnswer) error {
	patience := gitPatience()
	mark := rand.Text()
	script := "ask() { git --no-pager -c core.fsmonitor=false -c log.showSignature=false \"$@\"; }\n"
	var shown []string
	for _, q := range questions {
		shown = append(append(shown, q.Dir), q.Read...)
		call := func(words []string) string {
			text := "ask " + shell.Quote("--git-dir="+q.Dir)
			for _, w := range words {
				text += " " + shell.Quote(w)
			}
			return text
		}
		script += call(q.Args) + " <<'" + mark + "'\n" + q.Input + mark + "\n"
		if q.Else != nil {
			script += "test $? = 0 || " + call(q.Else) + "\n"
		}
		script += "printf '" + mark + "%d" + mark + "' $?\n"
	}
	cmd, err := withGit(home, patience, shown, "sh", "-s")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(script)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a sandbox for git: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(out, maxGit+1))
	if len(text) > maxGit {
		_ = cmd.Process.Kill()
		err = errGitMuch
	}
	ended := cmd.Wait()
	var status *exec.ExitError
	switch {
	case err != nil:
	case errors.As(ended, &status) && status.ExitCode() == timedOut:
		err = fmt.Errorf("git log takes more than %s: %w", patience, workspace.ErrTooMuch)
	case ended != nil:
		err = errors.New(firstLine(said.String()))
	}
	// What it printed before it ended counts.
	for i := range answers {
		part, rest, whole := bytes.Cut(text, []byte(mark))
		answers[i].Text = part
		if !whole {
			err = cmp.Or(err, io.ErrUnexpectedEOF)
			answers[i].Err = err
			break
		}
		code, rest, _ := bytes.Cut(rest, []byte(mark))
		if text = rest; string(code) != "0" {
			answers[i].Err = errors.New(firstLine(said.String()))
		}
	}
	return err
}

// firstLine is why something failed, as it has said itself.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return "git failed without a message"
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, "pccrun: "), "fatal: ")
}
