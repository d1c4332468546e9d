package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace/changes"
)

// bring fetches what the command changed, as a change set in the session's directory.
func (r *running) bring(ctx context.Context) error {
	after, err := r.look(ctx)
	if err != nil {
		return err
	}
	d := differ(r.before, after, &r.sent.Manifest)
	r.named("not downloaded: left out by ignore files", d.stays)
	if r.before.Reflog != 0 { // the repository is pccrun's
		d.git = slices.DeleteFunc(d.git, func(name string) bool { return name == ".git" })
		if after.Reflog != r.before.Reflog {
			r.warn("not downloaded: commits that were made there; the changes of files in them are")
		}
	}
	r.named("not downloaded: a repository that was made there", d.git)
	r.named("not downloaded: neither a file, a directory nor a link", d.odd)
	left := d.refuse(after, down(d))
	r.named("not downloaded, and left in the sandbox", left)
	if !r.came && len(d.ask)+len(d.gone) > 0 {
		err = r.download(ctx, d, after)
	}
	if err != nil || len(left) == 0 {
		return err
	}
	r.came = true
	return &StayedError{Err: r.record(), Left: len(left)}
}

// down is how what was asked for comes down: an apply judges what a tool would execute.
func down(d *difference) filesync.Down { return filesync.Down{Asked: d.askSet, Trust: true} }

// download fetches what differs.
func (r *running) download(ctx context.Context, d *difference, after *listing) error {
	file, err := r.spool("down.tar.zst")
	if err != nil {
		return err
	}
	defer file.Close()
	err = r.receive(ctx, d.parts(after), file, func(next func() (io.Reader, error)) error { return r.layer(ctx, d, next) })
	var refused *filesync.RefusedError
	if errors.As(err, &refused) {
		kept, e := r.keepRefused(file)
		return &StayedError{Err: errors.Join(err, e), Kept: kept}
	}
	return err
}

// receive fetches archives into a file, and has them taken while the next one is on its way.
func (r *running) receive(ctx context.Context, parts [][]string, file *os.File, take func(next func() (io.Reader, error)) error) error {
	transfer, stop := context.WithTimeout(ctx, r.provider.patient.transfer)
	defer stop()
	came := make(chan io.Reader, len(parts))
	var failed, lost error
	go func() {
		defer close(came)
		failed = r.get(transfer, parts, file, came)
	}()
	err := take(func() (io.Reader, error) {
		if part, ok := <-came; ok {
			plain, err := filesync.Decompress(part)
			if err != nil {
				return nil, &filesync.RefusedError{Why: err.Error()}
			}
			return plain, nil
		}
		lost = failed
		return nil, cmp.Or(lost, io.EOF)
	})
	stop()
	for range came { // until nobody writes to the file any more
	}
	if lost != nil {
		return fmt.Errorf("%s: download: %w", r.provider.Name(), lost)
	}
	return err
}

// named says that names are not brought back.
func (r *running) named(why string, names []string) {
	const most = 3
	if n := len(names); n > most {
		r.warn("%s: %s and %d more", why, strings.Join(names[:most], ", "), n-most)
	} else if n > 0 {
		r.warn("%s: %s", why, strings.Join(names, ", "))
	}
}

// cameName is what has come of a change set, in the session's directory.
const cameName = "came"

// layer makes the change set.
func (r *running) layer(ctx context.Context, d *difference, next func() (io.Reader, error)) (err error) {
	record := &changes.Record{Workspace: r.policy.Workspace, Protect: r.policy.Protect, Started: changes.Clock()}
	layer, err := changes.LayerOf(r.policy.Workspace)
	if err != nil {
		return err
	}
	record.Layers = []changes.Layer{layer}
	// There is no change set before all of it has come: who is killed meanwhile leaves none.
	came := filepath.Join(r.session.Name(), cameName)
	if err := state.RemoveAll(r.session, cameName); err != nil {
		return err
	}
	if len(d.ask) > 0 {
		made, err := filesync.ExtractParts(ctx, came, next, down(d))
		if err != nil {
			return err
		}
		if n := made.Files + made.Dirs + made.Links; n != len(d.ask) {
			return &filesync.RefusedError{Why: fmt.Sprintf("%d names were requested, and %d arrived", len(d.ask), n)}
		}
	}
	if err := changes.CreateUpper(r.session, record, nil); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, changes.RemoveUpper(r.session))
		}
	}()
	if len(d.ask) > 0 {
		info, err := r.session.Stat(changes.TreeDir(0))
		if err == nil {
			err = errors.Join(r.session.Chmod(cameName, info.Mode()), r.session.Remove(changes.TreeDir(0)), r.session.Rename(cameName, changes.TreeDir(0)))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range d.gone {
		if err := changes.Gone(r.session, 0, name); err != nil {
			return fmt.Errorf("record that %s was deleted: %w", name, err)
		}
	}
	return r.judge(d)
}

// judge takes out of the change set what may not come down.
func (r *running) judge(d *difference) error {
	upper, err := changes.OpenUpper(r.session, nil)
	if err != nil {
		return err
	}
	defer upper.Close()
	sets, err := upper.Changes()
	if err != nil {
		return err
	}
	now, err := r.ignoreFiles(upper, d)
	if err != nil {
		return err
	}
	kept, held := r.sent.Manifest.Judge(sets[0], now)
	for _, h := range held {
		r.warn("not downloaded: %s: %s", h.Change.Path, h.Why)
	}
	may := kept.Changes[:0]
	for _, c := range kept.Changes {
		if why := r.keeps(c.Path); why != "" {
			r.warn("not downloaded: %s: %s", c.Path, why)
			continue
		}
		may = append(may, c)
	}
	kept.Changes = may
	n, err := upper.Keep([]*changes.Set{&kept})
	if err == nil && n == 0 {
		return changes.RemoveUpper(r.session)
	}
	return err
}

// ignoreFiles returns the texts of the ignore files as the run left them.
func (r *running) ignoreFiles(upper *changes.Upper, d *difference) (map[string]map[string]string, error) {
	now := map[string]map[string]string{}
	for name, texts := range r.sent.Manifest.Ignore {
		now[name] = maps.Clone(texts)
	}
	for _, name := range d.ask {
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
