package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"

	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// Copy writes files of a run's copy into a directory, which is empty or not there, and returns how many
// names those are. The sandbox stays as it is: with a run that goes on, which is not disturbed, or
// stopped with its files. What a host tool would execute is held back and named.
func (p *Provider) Copy(ctx context.Context, resource providers.Resource, c providers.Copy, stdio providers.Stdio, o providers.Observer) (n int, err error) {
	selects, err := filesync.ParseSelection(c.Filter)
	if err != nil {
		return 0, err
	}
	r, err := p.reach(ctx, resource, stdio, o)
	if err != nil {
		return 0, err
	}
	// The run may fetch at the same time: nothing of this has a name of its.
	r.label, r.busy = fmt.Sprintf("%016x-", rand.Uint64()), c.Running
	if _, sleeps := p.service.(Sleeper); !r.busy && sleeps {
		stop := r.extend(ctx)
		defer func() {
			stop()
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patient.create)
			defer cancel()
			err = errors.Join(err, p.park(ending, r.box))
		}()
	}
	after, err := r.look(ctx)
	if err != nil {
		return 0, err
	}
	before, m := r.before, &r.sent.Manifest
	if c.All {
		before, m = &listing{}, &filesync.Manifest{} // to which all is new, and nothing is left out
	}
	d, err := compare(ctx, p.host.Git, before, after, m)
	if err == nil {
		err = d.only(ctx, p.host.Git, after, selects)
	}
	if err != nil {
		return 0, err
	}
	r.named("not downloaded: left out by ignore files", d.stays)
	r.named("not downloaded: a git directory", d.git)
	r.named("not downloaded: neither a file, a directory nor a link", d.odd)
	r.named("deleted in the sandbox", d.gone)
	down := filesync.Down{Asked: d.askSet, Protect: filesync.Protection(r.policy.Protect)}
	r.named("not downloaded", d.refuse(after, down))
	if len(d.ask) == 0 {
		return 0, nil
	}
	file, err := r.spool(r.label + "copy.tar.gz")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	held := 0
	err = r.receive(ctx, d.parts(after), file, func(next func() (io.Reader, error)) error {
		out, err := filesync.ExtractParts(ctx, c.Dir, next, down)
		if err != nil {
			return err
		}
		for _, h := range out.NotExtracted {
			r.warn("not downloaded: %s: protected (%s)", h.Path, h.Why)
		}
		n, held = out.Files+out.Dirs+out.Links, len(out.NotExtracted)
		return nil
	})
	clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.patient.script)
	defer cancel()
	e := r.remove(clearing, path.Dir(r.copy), []string{path.Base(tempPath(r.copy, r.label+"down"))})
	if e != nil && err == nil {
		r.warn("an archive was left in the sandbox: %v", e)
	}
	if missing := len(d.ask) - n - held; err == nil && missing > 0 {
		if !r.busy {
			return n, fmt.Errorf("%s: download: %d names were requested, and %d arrived", p.Name(), len(d.ask), n+held)
		}
		r.warn("not downloaded: %d names that the command removed meanwhile", missing)
	}
	return n, err
}
