package filesync

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pccrun/pccrun/workspace"
)

// A Sent is what became of an upload.
type Sent struct {
	Manifest Manifest // what went
	Findings []Finding
	Files    int
	Bytes    int64    // of their content
	Gone     []string // of [Tree]
}

// Left is what did not go, and why.
func (s *Sent) Left() []Left { return s.Manifest.Left }

// Write writes the archive: members by path, a directory before what is in it, with their times,
// since tools compare them, and without owners. A file in which a secret is found stays here. What
// is written of a file was scanned before, also where it changes meanwhile.
func (t *Tree) Write(ctx context.Context, to io.Writer) (*Sent, error) {
	rules, err := loadRules()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &tarWriter{Tree: t, ctx: ctx, rules: rules, dirs: t.Manifest.dirs(), to: to}
	w.sent.Manifest = t.Manifest
	w.sent.Manifest.Items, w.sent.Manifest.Left, w.sent.Gone = nil, slices.Clone(t.Manifest.Left), t.Gone
	var packing sync.WaitGroup
	defer packing.Wait()
	defer stop()
	queue := make(chan chan *batch, runtime.GOMAXPROCS(0)) // in the order of the archive
	packing.Go(func() {
		defer close(queue)
		for items := range w.batches() {
			packed := make(chan *batch, 1)
			select {
			case queue <- packed:
				packing.Go(func() { packed <- w.pack(items) })
			case <-ctx.Done():
				return
			}
		}
	})
	for packed := range queue {
		if err := w.write(<-packed); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &w.sent, tar.NewWriter(to).Close()
}

type tarWriter struct {
	*Tree
	ctx   context.Context
	rules *secretRules
	dirs  map[string]uint64 // see [opener]
	to    io.Writer
	sent  Sent

	buffers sync.Pool // of batches that are written
}

// A batch is a run of items. Several are packed at the same time, and written in turn.
type batch struct {
	text *bytes.Buffer // members of a tar
	sent Sent
	rest []Item // what follows from a file on that is larger than [piece], which is read when it is written
	err  error
}

const batchItems = 64 // at most, and so many that they are worth a goroutine

// batches cuts the items, so that the files of a batch have little more than [piece] bytes.
func (w *tarWriter) batches() iter.Seq[[]Item] {
	return func(yield func([]Item) bool) {
		for items := w.Manifest.Items; len(items) > 0; {
			end, size := 0, int64(0)
			for ; end < min(len(items), batchItems) && size < piece; end++ {
				size += items[end].Entry.Size
			}
			if !yield(items[:end]) {
				return
			}
			items = items[end:]
		}
	}
}

// sends reports whether an item goes: of a second upload only what the copy lacks does.
func (w *tarWriter) sends(item *Item) bool { return w.send == nil || w.send[item.Path] }

// pack makes a batch.
func (w *tarWriter) pack(items []Item) *batch {
	b := &batch{}
	if b.text, _ = w.buffers.Get().(*bytes.Buffer); b.text == nil {
		b.text = &bytes.Buffer{}
	}
	archive, files := tar.NewWriter(b.text), opener{root: w.root, dirs: w.dirs}
	defer files.close()
	for i, item := range items {
		err := w.ctx.Err()
		var content []byte
		var findings []Finding
		if err == nil && item.Entry.Kind == workspace.File && w.sends(&item) {
			if content, err = files.read(&item); item.Entry.Size > piece {
				b.rest = items[i:]
				break
			}
			findings = w.rules.all(item.Path, content, w.allowed)
		}
		goes, err := w.take(archive, &b.sent, &item, findings, err)
		if goes && err == nil {
			_, err = archive.Write(content)
		}
		if err != nil {
			b.err = fmt.Errorf("pack %s: %w", item.Path, reason(err))
			return b
		}
	}
	b.err = archive.Flush()
	return b
}

func (w *tarWriter) allowed(print string) bool { return slices.Contains(w.up.Allow, print) }

// take notes that an item goes, or why it stays, and writes the header of what goes now. err is why it could not be read.
func (w *tarWriter) take(archive *tar.Writer, sent *Sent, item *Item, findings []Finding, err error) (goes bool, _ error) {
	e, m := &item.Entry, &sent.Manifest
	switch {
	case vanished(err):
		m.Left = append(m.Left, Left{Path: item.Path, Why: errMoved.Error(), notable: true})
		return false, nil
	case err != nil:
		return false, err
	case len(findings) > 0:
		sent.Findings = append(sent.Findings, findings...)
		m.Left = append(m.Left, Left{Path: item.Path, Why: "a secret: " + findings[0].Rule, Size: e.Size, Secret: true})
		return false, nil
	}
	m.Items = append(m.Items, *item)
	if !w.sends(item) {
		return false, nil
	}
	h := header(item)
	if w.up.Since != nil {
		h.ModTime = time.Now() // what was built of what stood there is older, whatever it was
	}
	if e.Kind == workspace.File {
		sent.Files++
		sent.Bytes += e.Size
	}
	return true, archive.WriteHeader(h)
}

// write writes a batch, and what follows in it.
func (w *tarWriter) write(b *batch) error {
	for {
		if b.err != nil {
			return b.err
		}
		if _, err := w.to.Write(b.text.Bytes()); err != nil {
			return err
		}
		b.text.Reset()
		w.buffers.Put(b.text)
		m, more := &w.sent.Manifest, &b.sent.Manifest
		m.Items, m.Left, w.sent.Findings = append(m.Items, more.Items...), append(m.Left, more.Left...), append(w.sent.Findings, b.sent.Findings...)
		w.sent.Files += b.sent.Files
		w.sent.Bytes += b.sent.Bytes
		w.progress(0)
		if len(b.rest) == 0 {
			return nil
		}
		if err := w.writeLarge(b.rest[0]); err != nil {
			return fmt.Errorf("pack %s: %w", b.rest[0].Path, reason(err))
		}
		b = w.pack(b.rest[1:])
	}
}

// progress says how much is written, but for so many bytes.
func (w *tarWriter) progress(missing int64) {
	if w.up.Progress != nil {
		w.up.Progress(w.sent.Files, w.sent.Bytes-missing)
	}
}

// header is the header of an item.
func header(item *Item) *tar.Header {
	e := &item.Entry
	h := &tar.Header{Name: item.Path, Mode: int64(e.Mode), ModTime: time.Unix(0, e.Stamp.Mtime), Format: tar.FormatPAX}
	switch e.Kind {
	case workspace.Dir:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	case workspace.Link:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	return h
}

// writeLarge writes a large file, which is scanned once more on its way: it may have changed.
func (w *tarWriter) writeLarge(item Item) error {
	files := opener{root: w.root, dirs: w.dirs}
	defer files.close()
	f, err := files.open(&item)
	if err == nil {
		defer f.Close()
	}
	scan := func(passed func([]byte) error) ([]Finding, error) {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return w.rules.read(item.Path, io.LimitReader(contextReader{w.ctx, f}, item.Entry.Size), w.allowed, passed)
	}
	var findings []Finding
	if err == nil {
		findings, err = scan(nil)
	}
	archive := tar.NewWriter(w.to)
	goes, err := w.take(archive, &w.sent, &item, findings, err)
	if !goes || err != nil {
		return err
	}
	missing := item.Entry.Size
	again, err := scan(func(b []byte) error {
		n, err := archive.Write(b)
		missing -= int64(n)
		w.progress(missing)
		return err
	})
	if err == nil && len(again) > 0 {
		err = errors.New("it changed while it was read, and has a secret now")
	}
	if err == nil && missing > 0 { // the header has said how much comes
		w.sent.Manifest.Left = append(w.sent.Manifest.Left, Left{Path: item.Path, Why: "its end, which was cut off while it was read", Size: missing, notable: true})
		_, err = io.CopyN(archive, Zeros{}, missing)
	}
	if err != nil {
		return err
	}
	return archive.Flush()
}

// Zeros are any number of them: what a file has behind its end that was cut off while it was read.
type Zeros struct{}

func (Zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if e := r.ctx.Err(); e != nil {
		return n, e // also where who wrote gave up for the same reason
	}
	return n, err
}
