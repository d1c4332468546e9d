//go:build unix

package askgit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/workspace"
)

// maxGit bounds what git may print in answer to one question.
const maxGit = 64 << 20

var errGitMuch = fmt.Errorf("git prints more than %d MiB: %w", maxGit>>20, workspace.ErrTooMuch)

// A Git answers. The repositories lie in the workspace, or beside it.
type Git struct {
	Programs  *programs.Finder
	Workspace string                 // hidden there, but for git's directories
	Dir       func() (string, error) // pccrun's own, where the sandboxes have their home
}

// with calls do with a home that nothing else is in, and with git.
func (g *Git) with(do func(home string, git *programs.Program) error) error {
	git, err := g.Programs.Find("git", nil)
	if err != nil {
		return err
	}
	dir, err := g.Dir()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp(dir, "git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if err := os.Mkdir(filepath.Join(home, "w"), 0o700); err != nil {
		return err
	}
	return do(home, git)
}

// sandboxed returns this program, which runs git in a sandbox.
func sandboxed(dir string, flags, git []string) (*exec.Cmd, error) {
	self, err := programs.Self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, slices.Concat([]string{"run", "-q", "--provider", "native"}, flags, []string{"--"}, git)...)
	cmd.Args[0], cmd.Dir, cmd.WaitDelay = "pccrun", dir, programs.PipeDelay
	return cmd, nil
}

// timedOut is pccrun's exit status for a command that took longer than --timeout.
const timedOut = 124

// orderly is how much longer than git's time its sandbox may take, to be made and to end.
const orderly = time.Minute

// run runs git in a sandbox. Its home is the one given, so that no profile of anybody's is read.
func (g *Git) run(ctx context.Context, home string, git *programs.Program, patience time.Duration, shown, written, args []string, in io.Reader, out io.Writer) error {
	flags := []string{"--profile", "default", "--workspace", filepath.Join(home, "w"), "--timeout", strconv.FormatInt(max(patience.Milliseconds(), 1), 10) + "ms"}
	// The working tree that a configuration names is not shown, and not needed: an empty directory stands for it.
	for _, env := range []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_WORK_TREE=."} {
		flags = append(flags, "--env", env)
	}
	var hidden []string
	if g.Workspace != "" {
		hidden = []string{g.Workspace}
	}
	for _, path := range slices.Concat(shown, written) {
		access := "--read"
		if slices.Contains(written, path) {
			access = "--write"
		}
		flags = append(flags, access, path)
		if i := strings.LastIndex(path+"/", "/.git/"); i > 0 {
			hidden = append(hidden, path[:i])
		}
	}
	slices.Sort(hidden)
	for _, path := range slices.Compact(hidden) {
		if !slices.Contains(shown, path) {
			flags = append(flags, "--hide", path)
		}
	}
	cmd, err := sandboxed(home, flags, append([]string{git.Path, "--no-pager", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false"}, args...))
	if err != nil {
		return err
	}
	cmd.Env = []string{"PATH=" + filepath.Dir(git.Path) + ":/usr/bin:/bin", "HOME=" + home, "XDG_STATE_HOME=" + home + "/state", "XDG_CONFIG_HOME=" + home + "/config", "XDG_CACHE_HOME=" + home + "/cache", "LC_ALL=C"}
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a sandbox for git: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var late atomic.Bool
	defer time.AfterFunc(patience+orderly, func() { // --timeout counts from when git runs
		late.Store(true)
		_ = cmd.Process.Kill()
	}).Stop()
	err = cmd.Wait()
	var status *exec.ExitError
	switch {
	case late.Load():
		return fmt.Errorf("git's sandbox does not end: %w", workspace.ErrTooMuch)
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return nil
	case errors.As(err, &status) && status.ExitCode() == timedOut:
		return fmt.Errorf("git takes too long: %w", workspace.ErrTooMuch)
	case !errors.As(err, &status):
		return err
	}
	return cmp.Or(ctx.Err(), errors.New(firstLine(said.String())))
}

// Names returns which names in the repository git prints of some paths. It answers in a sandbox where the workspace is as
// a command sees it, and read-only.
func Names(workspace, dir string, paths []string, args ...string) []string {
	if len(paths) == 0 {
		return nil
	}
	cmd, err := sandboxed(dir, []string{"--workspace", workspace, "--read", workspace, "--timeout", "5s"},
		slices.Concat([]string{"git", "-C", dir, "--literal-pathspecs"}, args, []string{"-z", "--"}, paths))
	if err != nil {
		return nil
	}
	out := &Output{Room: maxGit}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return strings.FieldsFunc(out.String(), func(r rune) bool { return r == 0 })
}

// wholePatience is how long git may take for all that it is asked: much longer than it takes on a busy machine, or for the
// sandboxes to be made, or where xcrun looks for git on a Mac, which cannot keep there what it has found.
const wholePatience = 10 * time.Second

// Ask has git answer: it is a [workspace.AskGit].
func (g *Git) Ask(questions []workspace.GitQuestion) []workspace.GitAnswer {
	answers := make([]workspace.GitAnswer, len(questions))
	end := time.Now().Add(wholePatience)
	asked := 0
	err := g.with(func(home string, git *programs.Program) error {
		for i, q := range questions {
			for _, args := range [][]string{q.Args, q.Else} {
				if args == nil {
					break
				}
				patience := time.Until(end)
				if patience <= 0 {
					return fmt.Errorf("git takes more than %s: %w", wholePatience, workspace.ErrTooMuch)
				}
				if answers[i] = g.answer(home, git, patience, &q, args); answers[i].Err == nil {
					break
				}
			}
			asked = i + 1
		}
		return nil
	})
	if errors.Is(err, programs.ErrNone) {
		return nil
	}
	for i := asked; err != nil && i < len(answers); i++ {
		answers[i].Err = cmp.Or(answers[i].Err, err)
	}
	return answers
}

// answer asks one question. What git has printed before it failed counts.
func (g *Git) answer(home string, git *programs.Program, patience time.Duration, q *workspace.GitQuestion, args []string) workspace.GitAnswer {
	out := &Output{Room: maxGit}
	options := []string{"--git-dir=" + q.Dir, "--shallow-file", ""}
	if q.Shallow != "" {
		options[2] = filepath.Join(home, "w", "shallow")
		if err := os.WriteFile(options[2], []byte(q.Shallow), 0o600); err != nil {
			return workspace.GitAnswer{Err: err}
		}
	}
	shown := append([]string{q.Dir}, q.Read...)
	slices.Sort(shown)
	err := g.run(context.Background(), home, git, patience, slices.Compact(shown), nil, append(options, args...), strings.NewReader(q.Input), out)
	if out.Room < 0 {
		err = errGitMuch
	}
	return workspace.GitAnswer{Text: out.Bytes(), Err: err}
}

// An Output holds what git prints, at most so many bytes: who prints more gets SIGPIPE, and Room is negative from then on.
type Output struct {
	bytes.Buffer
	Room int
}

func (o *Output) Write(text []byte) (int, error) {
	if o.Room < 0 || len(text) > o.Room {
		o.Room = -1
		return 0, errGitMuch
	}
	o.Room -= len(text)
	return o.Buffer.Write(text)
}

// treePatience is how long git may take for all names of a tree.
const treePatience = 10 * time.Minute

// Run runs git in a sandbox that shows a directory of its own, where git starts, and, read-only, what is in show. prepare
// is given the directory before git starts; what is written there later git sees as well.
func (g *Git) Run(ctx context.Context, show, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
	err := g.with(func(home string, git *programs.Program) error {
		dir := filepath.Join(home, "w")
		if err := prepare(dir); err != nil {
			return err
		}
		return g.run(ctx, home, git, treePatience, show, nil, append([]string{"-C", dir}, args...), in, out)
	})
	if errors.Is(err, programs.ErrNone) {
		return errors.New("there is no git on this machine")
	}
	return err
}

// A Call is one use of git in a sandbox of its own, which has nothing of a repository beside what the call names.
type Call struct {
	Read     []string // directories that git reads
	Write    []string // directories that git writes too
	Args     []string
	In       io.Reader // may be nil
	Out      io.Writer // may be nil
	Patience time.Duration
}

// Do has git do what a call says. It executes no hook, and begins no maintenance.
func (g *Git) Do(ctx context.Context, c Call) error {
	return g.with(func(home string, git *programs.Program) error {
		args := append([]string{"-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, c.Args...)
		return g.run(ctx, home, git, c.Patience, c.Read, c.Write, args, c.In, c.Out)
	})
}

// Answer returns what git prints for a call, at most limit bytes of it.
func (g *Git) Answer(ctx context.Context, c Call, limit int) (string, error) {
	out := &Output{Room: limit}
	c.Out = out
	err := g.Do(ctx, c)
	if out.Room < 0 {
		return "", fmt.Errorf("git prints more than %d KiB", limit>>10)
	}
	return out.String(), err
}

// firstLine is why something failed, as it has said itself.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if line == "" {
		return "git failed without a message"
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, "pccrun: "), "fatal: ")
}
