package remote

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/providers/filesync"
)

// upload is the archive of the workspace, as a file that has no name.
type upload struct {
	archive Archive
	file    *os.File
}

func (u *upload) remove() { u.file.Close() }

// spool makes a file without a name in the session's directory.
func (r *running) spool(name string) (*os.File, error) {
	f, err := r.session.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = r.session.Remove(name)
	}
	return f, err
}

// write writes the archive of the workspace.
func (r *plan) write(ctx context.Context, to io.Writer) (*filesync.Sent, error) {
	config := Variable(r.provider.host.Environ, "XDG_CONFIG_HOME")
	tree, err := filesync.Open(ctx, r.policy.Workspace, filesync.Up{Excludes: filesync.UserIgnore(r.policy.Home, config), Hides: r.hides})
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	buffered := bufio.NewWriterSize(to, 1<<20)
	packed, err := filesync.Compress(buffered, filesync.Gzip)
	if err != nil {
		return nil, err
	}
	sent, err := tree.Write(ctx, packed)
	if err != nil {
		return nil, err
	}
	return sent, errors.Join(packed.Close(), buffered.Flush())
}

// pack writes the archive before anything is made that costs money, and says what stays here.
func (r *running) pack(ctx context.Context) (_ *upload, err error) {
	u := &upload{}
	if u.file, err = r.spool("up.tar.gz"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			u.remove()
		}
	}()
	sum := sha256.New()
	if r.sent, err = r.write(ctx, io.MultiWriter(u.file, sum)); err != nil {
		return nil, err
	}
	for _, l := range r.sent.Left() {
		if l.Notable() {
			r.warn("left out: %s: %s", l.Path, l.Why)
		}
	}
	for _, f := range r.sent.Findings {
		r.observer.Warning(events.Warning{Text: "secret, left out: " + f.String(), Hint: "remove it from the file"})
	}
	size, err := u.file.Seek(0, io.SeekEnd)
	u.archive = Archive{Size: size, Sum: hex.EncodeToString(sum.Sum(nil)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(u.file, 0, size)), nil
	}}
	return u, err
}

// Files is what PutTar and GetTar are made of where an API carries single files.
type Files interface {
	// PutFile writes a file, and makes the directories around it.
	PutFile(ctx context.Context, s *Sandbox, name string, a *Archive) error
	// GetFile writes what a file holds: begin is called before each attempt.
	GetFile(ctx context.Context, s *Sandbox, name string, begin func() (io.Writer, error)) error
}

// beside is where an archive waits: next to the directory, in the user's home.
func beside(dir, name string) string {
	return path.Join(path.Dir(dir), ".pccrun-"+path.Base(dir)+"-"+name)
}

// PutByFile extracts an archive by a file and a script. What came over broken is sent again.
func PutByFile(ctx context.Context, s Service, files Files, box *Sandbox, dir string, a *Archive) error {
	name := beside(dir, "up")
	for n := 1; ; n++ {
		if err := files.PutFile(ctx, box, name, a); err != nil {
			return err
		}
		_, code, err := Script(ctx, s, box, false, nil, unpack, nil, name, a.Sum, dir)
		switch {
		case code == 65 && n < 3:
			continue
		case code == 65:
			return errors.New("the received data differs from what was sent")
		}
		return err
	}
}

// GetByFile makes an archive by a script and fetches the file. What came over broken is
// fetched again.
func GetByFile(ctx context.Context, s Service, files Files, box *Sandbox, dir string, names []string, to *Incoming) error {
	name := beside(dir, "down")
	printed, _, err := Script(ctx, s, box, true, nil, pack, []byte(strings.Join(names, "\x00")+"\x00"), name, dir)
	if err != nil {
		return err
	}
	var want string
	var size int64
	if _, err := fmt.Sscan(string(printed), &want, &size); err != nil {
		return fmt.Errorf("read the archive's checksum: %w", err)
	}
	for n := 1; ; n++ {
		var sum hash.Hash
		err := files.GetFile(ctx, box, name, func() (io.Writer, error) {
			sum = sha256.New()
			if err := to.Truncate(0); err != nil {
				return nil, err
			}
			_, err := to.Seek(0, io.SeekStart)
			return &shown{to: io.MultiWriter(to.File, sum), total: size, shown: to.Shown}, err
		})
		if err != nil {
			return err
		}
		if hex.EncodeToString(sum.Sum(nil)) == want {
			return nil
		}
		if n == 3 {
			return errors.New("the received data differs from what was sent")
		}
	}
}

// shown is a stream whose way is shown.
type shown struct {
	from        io.ReadCloser
	to          io.Writer
	done, total int64
	shown       func(done, total int64)
}

func (s *shown) add(n int, err error) (int, error) {
	if s.done += int64(n); s.shown != nil {
		s.shown(s.done, s.total)
	}
	return n, err
}

func (s *shown) Read(b []byte) (int, error)  { return s.add(s.from.Read(b)) }
func (s *shown) Write(b []byte) (int, error) { return s.add(s.to.Write(b)) }
func (s *shown) Close() error                { return s.from.Close() }

// progress is what shows one way of an archive; over is called at its end.
func (r *running) progress(what string) (way func(done, total int64), over func()) {
	if r.io.Progress == nil {
		return nil, func() {}
	}
	return func(done, total int64) { r.io.Progress(what, done, total) }, func() { r.io.Progress("", 0, 0) }
}

// send extracts an archive in a directory of the sandbox.
func (r *running) send(ctx context.Context, what, dir string, a *Archive) error {
	way, over := r.progress(what)
	defer over()
	return r.provider.service.PutTar(ctx, r.box, dir, &Archive{Size: a.Size, Sum: a.Sum, Open: func() (io.ReadCloser, error) {
		from, err := a.Open()
		return &shown{from: from, total: a.Size, shown: way}, err
	}})
}

// keepRefused gives what came a name, so that nothing of it is lost.
func (r *running) keepRefused(f *os.File) (string, error) {
	const name = "refused.tar.gz"
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	to, err := r.session.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, f)
	return filepath.Join(r.session.Name(), name), errors.Join(err, to.Close())
}
