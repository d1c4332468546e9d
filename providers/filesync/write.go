package filesync

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
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
	ctx, cancel := context.WithCancel(ctx)
	w := &tarWriter{Tree: t, ctx: ctx, rules: rules, tar: tar.NewWriter(to), queue: make(chan *tarFile, readAhead)}
	var opening sync.WaitGroup
	defer opening.Wait()
	defer cancel()
	opening.Go(w.openFiles)
	w.sent.Manifest = t.Manifest
	w.sent.Manifest.Items, w.sent.Manifest.Left, w.sent.Gone = nil, slices.Clone(t.Manifest.Left), t.Gone
	for f := range w.queue {
		if err := w.writeMember(f); err != nil {
			cancel()
			for f := range w.queue {
				f.close()
			}
			return nil, fmt.Errorf("pack %s: %w", f.item.Path, reason(err))
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &w.sent, w.tar.Close()
}

// readAhead is how many files are read before their turn: each of at most [piece] bytes.
const readAhead = 16

// A tarFile is one item that is opened in turn, then scanned beside others, then written in turn.
type tarFile struct {
	item     Item
	file     *os.File // nil if it is no file, or is not sent
	data     []byte
	large    bool // its content is read when it is written
	vanished bool
	findings []Finding
	err      error
	scanned  sync.WaitGroup
}

func (f *tarFile) close() {
	f.scanned.Wait()
	if f.file != nil {
		f.file.Close()
	}
}

type tarWriter struct {
	*Tree
	ctx   context.Context
	rules *secretRules
	tar   *tar.Writer
	queue chan *tarFile // in the order of the archive
	sent  Sent

	buffers sync.Pool // of files that are written
}

// openFiles opens the files one after the other, through the directory of each.
func (w *tarWriter) openFiles() {
	defer close(w.queue)
	var dir *os.Root
	at := "."
	inodes := map[string]uint64{} // of directories
	defer func() {
		if dir != nil {
			dir.Close()
		}
	}()
	for _, item := range w.Manifest.Items {
		f := &tarFile{item: item}
		if item.Entry.Kind == workspace.Dir {
			inodes[item.Path] = item.Entry.Stamp.Ino
		}
		if item.Entry.Kind == workspace.File && (w.send == nil || w.send[item.Path]) {
			if in := path.Dir(item.Path); dir == nil || in != at {
				if dir != nil {
					dir.Close()
				}
				dir, f.err = openDir(w.root, in, inodes[in])
				at = in
			}
			if f.err == nil {
				f.file, f.err = openFile(dir, path.Base(item.Path), &f.item.Entry)
			}
			if f.vanished = vanished(f.err); f.vanished {
				f.err = nil
			}
		}
		if f.file != nil {
			f.scanned.Go(func() { w.scan(f) })
		}
		select {
		case w.queue <- f:
		case <-w.ctx.Done():
			f.close()
			return
		}
	}
}

// openFile opens the file of a name that was decided on, which may be another one by now: many a program saves a file so.
// A link is none.
func openFile(dir *os.Root, name string, e *changes.Entry) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	named, gone := dir.Lstat(name)
	if err = errors.Join(err, gone); err == nil {
		if !info.Mode().IsRegular() || !os.SameFile(info, named) {
			err = errMoved
		}
		now := changes.EntryOf(info)
		e.Size, e.Stamp, e.Mode = now.Size, now.Stamp, now.Mode&0o1777
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// scan reads a file that is not large, and scans it for secrets.
func (w *tarWriter) scan(f *tarFile) {
	if f.large = f.item.Entry.Size > piece; f.large {
		return
	}
	size := int(f.item.Entry.Size) + 1 // one more tells whether it has grown
	buf, _ := w.buffers.Get().([]byte)
	if cap(buf) < size {
		buf = make([]byte, max(size, 64<<10))
	}
	buf = buf[:size]
	n, err := io.ReadFull(f.file, buf)
	switch {
	case err == nil:
		f.large = true
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		f.err = err
	default:
		f.data = buf[:n]
		f.findings = w.rules.all(f.item.Path, f.data, w.allowed)
	}
}

func (w *tarWriter) allowed(print string) bool { return slices.Contains(w.up.Allow, print) }

// writeMember writes one item, or notes why it stays.
func (w *tarWriter) writeMember(f *tarFile) error {
	f.scanned.Wait()
	defer f.close()
	if f.err != nil {
		return f.err
	}
	e := &f.item.Entry
	if f.vanished {
		w.sent.Manifest.Left = append(w.sent.Manifest.Left, Left{Path: f.item.Path, Why: errMoved.Error(), notable: true})
		return nil
	}
	if f.large {
		var err error
		if f.findings, err = w.scanLarge(f, nil); err != nil {
			return err
		}
	} else if f.file != nil {
		e.Size = int64(len(f.data))
	}
	if len(f.findings) > 0 {
		w.sent.Findings = append(w.sent.Findings, f.findings...)
		w.sent.Manifest.Left = append(w.sent.Manifest.Left, Left{Path: f.item.Path, Why: "a secret: " + f.findings[0].Rule, Size: e.Size, Secret: true})
		return nil
	}
	w.sent.Manifest.Items = append(w.sent.Manifest.Items, f.item)
	if w.send != nil && !w.send[f.item.Path] {
		return nil
	}
	h := header(&f.item)
	if w.up.Since != nil {
		h.ModTime = time.Now() // what was built of what stood there is older, whatever it was
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if e.Kind == workspace.File {
		w.sent.Files++
		w.sent.Bytes += e.Size
	}
	if f.large {
		if err := w.writeLarge(f); err != nil {
			return err
		}
	} else if f.file != nil {
		if _, err := w.tar.Write(f.data); err != nil {
			return err
		}
		w.buffers.Put(f.data[:0])
	}
	if w.up.Progress != nil {
		w.up.Progress(w.sent.Files, w.sent.Bytes)
	}
	return nil
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

// scanLarge scans a large file from its beginning, and calls passed with what holds no secret.
func (w *tarWriter) scanLarge(f *tarFile, passed func([]byte) error) ([]Finding, error) {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return w.rules.read(f.item.Path, io.LimitReader(contextReader{w.ctx, f.file}, f.item.Entry.Size), w.allowed, passed)
}

// writeLarge writes a large file, which is scanned once more: it may have changed.
func (w *tarWriter) writeLarge(f *tarFile) error {
	written := int64(0)
	again, err := w.scanLarge(f, func(b []byte) error {
		n, err := w.tar.Write(b)
		written += int64(n)
		if w.up.Progress != nil {
			w.up.Progress(w.sent.Files, w.sent.Bytes-f.item.Entry.Size+written)
		}
		return err
	})
	if err == nil && len(again) > 0 {
		err = errors.New("it changed while it was read, and has a secret now")
	}
	if missing := f.item.Entry.Size - written; err == nil && missing > 0 { // the header has said how much comes
		w.sent.Manifest.Left = append(w.sent.Manifest.Left, Left{Path: f.item.Path, Why: "its end, which was cut off while it was read", Size: missing, notable: true})
		_, err = io.CopyN(w.tar, Zeros{}, missing)
	}
	return err
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
