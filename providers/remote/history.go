package remote

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
)

// remember makes a repository of the copy, with the commits of a stream: $1 the file, $2 its SHA-256, $3 the
// directory, $4 its branch, $5 where pccrun's program is, which decodes zstd. Of a repository that stands there
// nothing is read: a command may have configured it.
const remember = `
echo "$2  $1" | sha256sum -c --status 2>/dev/null || exit 65
command -v git >/dev/null || { echo "there is no git" >&2; exit 71; }
cd -- "$3" && rm -rf .git && git init -q && git symbolic-ref HEAD "$4" && "$5/pccrun" sync zstd -d < "$1" | git fast-import --quiet --done && git read-tree HEAD && rm -f -- "$1"
`

// reflog prints how long the list of what HEAD was is, in a copy, $1.
const reflog = `cd -- "$1" && { stat -c %s .git/logs/HEAD 2>/dev/null || echo 0; }`

// past is the history that goes up.
type past struct {
	*filesync.History
	archive Archive
	file    *os.File
}

// history writes the commits that go up. raw is for what git writes of them.
func (r *plan) history(ctx context.Context, tree *filesync.Tree, raw io.ReadWriteSeeker, to io.Writer) (h *filesync.History, err error) {
	git, common, err := filesync.GitDirs(r.policy.Workspace)
	if err == nil {
		export := func(to io.Writer) error { return r.provider.host.Export(ctx, git, common, r.command.History, to) }
		h, err = tree.History(ctx, export, raw, to)
	}
	if err != nil {
		err = fmt.Errorf("flag --history: %w", err)
	}
	return h, err
}

// weighHistory writes them for nobody.
func (r *plan) weighHistory(tree *filesync.Tree) (*filesync.History, error) {
	root, err := state.Open(r.provider.host.StateDir, r.policy.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := "history-" + rand.Text()
	raw, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	if err := root.Remove(name); err != nil {
		return nil, err
	}
	return r.history(context.Background(), tree, raw, io.Discard)
}

// packHistory makes a file of them.
func (r *running) packHistory(ctx context.Context, tree *filesync.Tree) (_ *past, err error) {
	raw, err := r.spool("exported")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	p := &past{}
	if p.file, err = r.spool("history"); err != nil {
		return nil, err
	}
	sum := sha256.New()
	packed, err := filesync.Compress(io.MultiWriter(p.file, sum))
	if err != nil {
		return p, err
	}
	p.History, err = r.history(ctx, tree, raw, packed)
	if err = errors.Join(err, packed.Close()); err == nil {
		p.archive, err = archive(p.file, sum)
	}
	return p, err
}

// sendHistory makes the copy a repository.
func (r *running) sendHistory(ctx context.Context, p *past) error {
	var left []string
	for _, l := range p.Left {
		left = append(left, l.Path)
	}
	r.named("left out of the history", left)
	for _, f := range p.Findings {
		r.observer.Warning(events.Warning{Text: "secret, left out of the history: " + f.String()})
	}
	err := r.put(ctx, "uploading the history", beside(r.copy, "history"), &p.archive, remember, r.copy, p.Branch, r.program)
	if err == nil {
		r.reflog, err = r.logged(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: upload the history: %w", r.provider.Name(), err)
	}
	return nil
}

// logged says how long the log of HEAD is there.
func (r *running) logged(ctx context.Context) (string, error) {
	printed, _, err := r.shell(ctx, false, reflog, nil, r.copy)
	return strings.TrimSpace(string(printed)), err
}
