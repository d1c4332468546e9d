package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace/changes"
)

// fetch brings what the command changed, as a change set in the session's directory, and says where all is if that
// fails.
func (l *place) fetch(ctx context.Context, by *fetchable) error {
	err := l.bring(ctx, by)
	var stayed *StayedError
	if err != nil && !errors.As(err, &stayed) {
		return &StayedError{Err: err}
	}
	return err
}

func (l *place) bring(ctx context.Context, by *fetchable) error {
	after, err := l.list(ctx, "")
	if err != nil {
		return err
	}
	d, err := compare(ctx, l.p.host.Git, by.Before, after, by.Manifest)
	if err != nil {
		return err
	}
	l.named("not downloaded: left out by ignore files", d.stays)
	if by.Before.Reflog != 0 { // the repository is pccrun's
		d.git = slices.DeleteFunc(d.git, func(name string) bool { return name == ".git" })
		if after.Reflog != by.Before.Reflog {
			l.warn("not downloaded: commits that were made there; the changes of files in them are")
		}
	}
	l.named("not downloaded: a repository that was made there", d.git)
	l.named("not downloaded: neither a file, a directory nor a link", d.odd)
	left := d.refuse(down(d))
	l.named("not downloaded, and left in the sandbox", left)
	if !by.Came && len(d.ask)+len(d.gone) > 0 {
		err = l.download(ctx, by, d)
	}
	if err != nil || len(left) == 0 {
		return err
	}
	by.Came = true
	return &StayedError{Err: l.record(by), Left: len(left)}
}

// down is how what was asked for comes down: an apply judges what a tool would execute.
func down(d *difference) filesync.Down { return filesync.Down{Asked: d.ask, Trust: true} }

// download makes a change set of what differs. What came and is refused gets a name, so that nothing of it is lost.
func (l *place) download(ctx context.Context, by *fetchable, d *difference) error {
	file, err := l.spool("down.tar.zst")
	if err != nil {
		return err
	}
	defer file.Close()
	// There is no change set before all of it has come: who is killed meanwhile leaves none.
	if err := state.RemoveAll(l.session, cameName); err != nil {
		return err
	}
	made, err := l.receive(ctx, filepath.Join(l.session.Name(), cameName), d, file, down(d))
	if err == nil && made.names() != len(d.ask) {
		err = &filesync.RefusedError{Why: fmt.Sprintf("%d names were requested, and %d arrived", len(d.ask), made.names())}
	}
	var refused *filesync.RefusedError
	if errors.As(err, &refused) {
		const name = "refused.tar.zst"
		to, e := l.session.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if e == nil {
			_, e = io.Copy(to, io.NewSectionReader(file, 0, math.MaxInt64))
			e = errors.Join(e, to.Close())
		}
		stayed := &StayedError{Err: errors.Join(err, e)}
		if e == nil {
			stayed.Kept = filepath.Join(l.session.Name(), name)
		}
		return stayed
	}
	if err != nil {
		return err
	}
	return l.layer(ctx, by, d)
}

// received is what came; nil is nothing.
type received filesync.Extracted

func (r *received) names() int { return r.Files + r.Dirs + r.Links }

// receive fetches archives of what is asked for into a file, one after the other, and has each be extracted into a
// directory while the next one is on its way.
func (l *place) receive(ctx context.Context, dir string, d *difference, file *os.File, down filesync.Down) (*received, error) {
	if len(d.ask) == 0 {
		return &received{}, nil
	}
	transfer, stop := context.WithTimeout(ctx, l.p.patient.transfer)
	defer stop()
	parts := d.parts()
	came := make(chan io.Reader, len(parts))
	var failed, lost error
	go func() {
		defer close(came)
		if l.progress != nil {
			defer l.progress("", 0, 0)
		}
		names, begin := 0, int64(0)
		for _, part := range parts {
			names += len(part)
			size, err := l.pack(transfer, part, file, begin, func(done, total int64) {
				if l.progress != nil {
					l.progress("downloading", begin+done, (begin+total)*int64(len(d.ask))/int64(names))
				}
			})
			if failed = err; err != nil {
				return
			}
			came <- io.NewSectionReader(file, begin, size)
			begin += size
		}
	}()
	out, err := filesync.ExtractParts(ctx, dir, func() (io.Reader, error) {
		if part, ok := <-came; ok {
			plain, err := filesync.Decompress(part)
			if err != nil {
				return nil, &filesync.RefusedError{Why: err.Error()}
			}
			return plain, nil
		}
		lost = failed
		return nil, cmp.Or(lost, io.EOF)
	}, down)
	stop()
	for range came { // until nobody writes to the file any more
	}
	if lost != nil {
		return nil, fmt.Errorf("%s: download: %w", l.p.Name(), lost)
	}
	return (*received)(out), err
}

// cameName is what has come of a change set, in the session's directory.
const cameName = "came"

// layer makes the change set of what came.
func (l *place) layer(ctx context.Context, by *fetchable, d *difference) (err error) {
	record := &changes.Record{Workspace: by.Policy.Workspace, Protect: by.Policy.Protect, Started: changes.Clock()}
	layer, err := changes.LayerOf(by.Policy.Workspace)
	if err != nil {
		return err
	}
	record.Layers = []changes.Layer{layer}
	if err := changes.CreateUpper(l.session, record, nil); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, changes.RemoveUpper(l.session))
		}
	}()
	if len(d.ask) > 0 {
		info, err := l.session.Stat(changes.TreeDir(0))
		if err == nil {
			err = errors.Join(l.session.Chmod(cameName, info.Mode()), l.session.Remove(changes.TreeDir(0)), l.session.Rename(cameName, changes.TreeDir(0)))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range d.gone {
		if err := changes.Gone(l.session, 0, name); err != nil {
			return fmt.Errorf("record that %s was deleted: %w", name, err)
		}
	}
	return l.judge(ctx, by, d)
}

// judge takes out of the change set what may not come down.
func (l *place) judge(ctx context.Context, by *fetchable, d *difference) error {
	upper, err := changes.OpenUpper(l.session, nil)
	if err != nil {
		return err
	}
	defer upper.Close()
	sets, err := upper.Changes()
	if err != nil {
		return err
	}
	now, err := by.ignoreFiles(upper, d)
	if err != nil {
		return err
	}
	kept, withheld, err := by.Manifest.Judge(ctx, l.p.host.Git, sets[0], now)
	if err != nil {
		return err
	}
	for _, h := range withheld {
		l.warn("not downloaded: %s: %s", h.Change.Path, h.Why)
	}
	may := kept.Changes[:0]
	for _, c := range kept.Changes {
		if why := Below(profiles.Overlay, by.Policy, c.Path); why != "" {
			l.warn("not downloaded: %s: %s", c.Path, why)
			continue
		}
		may = append(may, c)
	}
	kept.Changes = may
	n, err := upper.Keep([]*changes.Set{&kept})
	if err == nil && n == 0 {
		return changes.RemoveUpper(l.session)
	}
	return err
}

// ignoreFiles returns the texts of the ignore files as the run left them.
func (f *fetchable) ignoreFiles(upper *changes.Upper, d *difference) (map[string]map[string]string, error) {
	now := map[string]map[string]string{}
	for name, texts := range f.Manifest.Ignore {
		now[name] = maps.Clone(texts)
	}
	for name := range d.ask {
		base := path.Base(name)
		if !filesync.IsIgnoreFile(base) {
			continue
		}
		text, err := upper.ReadTree(0, name, 1<<20)
		if err != nil && !errors.Is(err, fs.ErrInvalid) {
			continue // a link or a directory: git reads none
		}
		if now[base] == nil {
			now[base] = map[string]string{}
		}
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		now[base][dir] = string(text)
	}
	return now, nil
}

// Copy writes files of a run's copy into a directory, which is empty or not there, and returns how many
// names those are. The sandbox stays as it is: with a run that goes on, which is not disturbed, or
// stopped with its files. What a host tool would execute is held back and named.
func (p *Provider) Copy(ctx context.Context, resource providers.Resource, c providers.Copy, stdio providers.Stdio, o providers.Observer) (n int, err error) {
	selects, err := filesync.ParseSelection(c.Filter)
	if err != nil {
		return 0, err
	}
	l, by, err := p.reach(ctx, resource, stdio, o)
	if err != nil {
		return 0, err
	}
	// The run may fetch at the same time: nothing of this has a name of its.
	l.tag, l.busy = fmt.Sprintf("%016x-", rand.Uint64()), c.Running
	if _, sleeps := p.service.(Sleeper); !l.busy && sleeps {
		stop := l.prolong(ctx)
		defer func() {
			stop()
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patient.create)
			defer cancel()
			err = errors.Join(err, p.park(ending, l.box))
		}()
	}
	after, err := l.list(ctx, "")
	if err != nil {
		return 0, err
	}
	before, m := by.Before, by.Manifest
	if c.All {
		before, m = &listing{}, &filesync.Manifest{} // to which all is new, and nothing is left out
	}
	d, err := compare(ctx, p.host.Git, before, after, m)
	if err == nil {
		err = d.only(ctx, p.host.Git, selects)
	}
	if err != nil {
		return 0, err
	}
	l.named("not downloaded: left out by ignore files", d.stays)
	l.named("not downloaded: a git directory", d.git)
	l.named("not downloaded: neither a file, a directory nor a link", d.odd)
	l.named("deleted in the sandbox", d.gone)
	down := filesync.Down{Asked: d.ask, Protect: filesync.Protection(by.Policy.Protect)}
	l.named("not downloaded", d.refuse(down))
	if len(d.ask) == 0 {
		return 0, nil
	}
	file, err := l.spool(l.tag + "copy.tar.zst")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	came, err := l.receive(ctx, c.Dir, d, file, down)
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patient.script)
	defer cancel()
	if e := l.remove(clearing, path.Dir(l.Copy), []string{path.Base(l.temp("down"))}); e != nil && err == nil {
		l.warn("an archive was left in the sandbox: %v", e)
	}
	if err != nil {
		return 0, err
	}
	for _, h := range came.NotExtracted {
		l.warn("not downloaded: %s: protected (%s)", h.Path, h.Why)
	}
	n = came.names()
	if missing := len(d.ask) - n - len(came.NotExtracted); missing > 0 {
		if !l.busy {
			return n, fmt.Errorf("%s: download: %d names were requested, and %d arrived", p.Name(), len(d.ask), len(d.ask)-missing)
		}
		l.warn("not downloaded: %d names that the command removed meanwhile", missing)
	}
	return n, nil
}
