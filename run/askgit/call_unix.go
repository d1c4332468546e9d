//go:build unix

package askgit

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
)

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
	out := &limited{room: limit}
	c.Out = out
	err := g.Do(ctx, c)
	if out.room < 0 {
		return "", fmt.Errorf("git prints more than %d KiB", limit>>10)
	}
	return out.String(), err
}

// A limited buffer fails for who writes more than it has room for.
type limited struct {
	strings.Builder
	room int
}

func (l *limited) Write(text []byte) (int, error) {
	if l.room -= len(text); l.room < 0 {
		return 0, errGitMuch
	}
	return l.Builder.Write(text)
}
