package remote

import (
	"bufio"
	"bytes"
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
	"regexp"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// upload is the archive of the workspace, as a file that has no name.
type upload struct {
	archive Archive
	file    *os.File
	stop    context.CancelFunc
	packed  chan struct{} // closed when all of it is written, or err says why not
	sent    *filesync.Sent
	err     error
}

func (u *upload) remove() {
	u.stop()
	<-u.packed
	u.file.Close()
}

// archive is a file that was written, with the sum of all.
func archive(file *os.File, sum hash.Hash) (a Archive, err error) {
	a.Sum = hex.EncodeToString(sum.Sum(nil))
	a.Size, err = file.Seek(0, io.SeekEnd)
	a.Open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(file, 0, a.Size)), nil }
	return a, err
}

// spool makes a file without a name in the session's directory.
func (r *running) spool(name string) (*os.File, error) {
	f, err := r.session.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		err = r.session.Remove(name)
	}
	return f, err
}

// open looks through the workspace, and opens none of what it would send.
func (r *plan) open(ctx context.Context, since *filesync.Since) (*filesync.Tree, error) {
	config := Variable(r.provider.host.Environ, "XDG_CONFIG_HOME")
	kept, by, err := profiles.UploadIgnore(r.policy.Home)
	if err != nil {
		return nil, err
	}
	return filesync.Open(ctx, r.policy.Workspace, filesync.Up{Git: r.provider.host.Git, Excludes: filesync.UserIgnore(r.policy.Home, config), Kept: kept, KeptBy: by, Hides: r.hides, Since: since})
}

// write writes the archive of the workspace.
func write(ctx context.Context, tree *filesync.Tree, to io.Writer) (*filesync.Sent, error) {
	buffered := bufio.NewWriterSize(to, 1<<20)
	packed, err := filesync.Compress(buffered)
	if err != nil {
		return nil, err
	}
	sent, err := tree.Write(ctx, packed)
	if err != nil {
		return nil, err
	}
	return sent, errors.Join(packed.Close(), buffered.Flush())
}

// pack begins to write the archive, which goes on while the sandbox is made. A workspace that is too
// large is refused before anything is made that costs money.
func (r *running) pack(ctx context.Context) (*upload, error) {
	tree, err := r.open(ctx, r.since)
	if err != nil {
		return nil, err
	}
	u := &upload{packed: make(chan struct{})}
	if u.file, err = r.spool("up.tar.zst"); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	ctx, u.stop = context.WithCancel(ctx)
	go func() {
		defer close(u.packed)
		defer tree.Close()
		sum := sha256.New()
		if u.sent, u.err = write(ctx, tree, io.MultiWriter(u.file, sum)); u.err != nil {
			return
		}
		u.archive, u.err = archive(u.file, sum)
	}()
	return u, nil
}

// upload sends the workspace when it is packed, and says what stays here.
func (r *running) upload(ctx context.Context, u *upload) error {
	<-u.packed
	if u.err != nil {
		return u.err
	}
	r.sent = u.sent
	for _, l := range r.sent.Left() {
		if l.Notable() {
			r.warn("left out: %s: %s", l.Path, l.Why)
		}
	}
	for _, f := range r.sent.Findings {
		r.observer.Warning(events.Warning{Text: "secret, left out: " + f.String(), Hint: "remove it from the file"})
	}
	if most := r.provider.facts.MaxFile; most > 0 && u.archive.Size > most {
		return fmt.Errorf("%s: the packed workspace has %d bytes, and a file may have %d there: list what need not go in .pccrunignore", r.provider.Name(), u.archive.Size, most)
	}
	if len(r.sent.Gone) > 0 {
		if err := r.remove(ctx, r.copy, r.sent.Gone); err != nil {
			return fmt.Errorf("%s: remove what is not in the workspace: %w", r.provider.Name(), err)
		}
	}
	if err := r.send(ctx, &u.archive); err != nil {
		return fmt.Errorf("%s: upload: %w", r.provider.Name(), err)
	}
	if branch := branchOf(r.policy.Workspace); branch != "" {
		if err := r.word(ctx, r.program, false, nil, repositoryWord, r.copy, branch); err != nil {
			r.warn("the copy is no git repository: %v", err)
		}
	}
	return nil
}

// branchOf is the branch that a working tree with a repository is on, as a reference; "" for a directory that is none.
func branchOf(dir string) string {
	git := filepath.Join(dir, ".git")
	if text, err := os.ReadFile(git); err == nil { // a linked tree
		to, err := vcs.ParseGitFile(text)
		if err != nil {
			return ""
		}
		if git = to; !filepath.IsAbs(git) {
			git = filepath.Join(dir, to)
		}
	}
	text, err := os.ReadFile(filepath.Join(git, "HEAD"))
	if err != nil {
		return ""
	}
	if name, is := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: "); is && branchShape.MatchString(name) {
		return name
	}
	return "refs/heads/main" // a commit, or whatever the file that .git names holds
}

var branchShape = regexp.MustCompile(`^refs/heads/[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}$`)

// tempPath is where a file waits that the engine sends or fetches: next to a directory, in the user's home.
func tempPath(dir, name string) string {
	return path.Join(path.Dir(dir), ".pccrun-"+path.Base(dir)+"-"+name)
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

var errGarbled = errors.New("the received data differs from what was sent")

// send extracts an archive in the copy. What came over broken is sent again.
func (r *running) send(ctx context.Context, a *Archive) error {
	name := tempPath(r.copy, "up")
	for n := 1; ; n++ {
		err := r.put(ctx, "uploading", name, a)
		if err == nil {
			err = r.word(ctx, r.program, false, nil, extractWord, name, a.Sum, r.copy)
		}
		if !errors.Is(err, errGarbled) || n == 3 {
			return err
		}
	}
}

// put sends a file.
func (r *running) put(ctx context.Context, what, name string, a *Archive) error {
	way, over := r.progress(what)
	defer over()
	return r.provider.service.PutFile(ctx, r.box, name, &Archive{Size: a.Size, Sum: a.Sum, Mode: a.Mode, Open: func() (io.ReadCloser, error) {
		from, err := a.Open()
		return &shown{from: from, total: a.Size, shown: way}, err
	}})
}

// withNames sends a file with names for a word of [Place]. What came over broken is sent again.
func (r *running) withNames(ctx context.Context, names []string, do func(file, sum string) error) error {
	text, file := namesOf(names), tempPath(r.copy, r.label+"names")
	sum := sumOf(text)
	for n := 1; ; n++ {
		err := r.provider.service.PutFile(ctx, r.box, file, &Archive{
			Size: int64(len(text)), Sum: sum, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		})
		if err == nil {
			err = do(file, sum)
		}
		if !errors.Is(err, errGarbled) || n == 3 {
			return err
		}
	}
}

// remove removes names in a directory of the sandbox.
func (r *running) remove(ctx context.Context, dir string, names []string) error {
	return r.withNames(ctx, names, func(file, sum string) error {
		return r.word(ctx, r.program, true, nil, removeWord, dir, file, sum)
	})
}

// A download comes in parts, so that one is extracted while the next is made and on its way: each of so
// many names, and about so many bytes of content.
const (
	partNames = 4096
	partBytes = 32 << 20
)

// parts cuts what is asked for.
func (d *difference) parts(after *listing) (list [][]string) {
	if len(d.ask) == 0 {
		return nil
	}
	begin, size := 0, int64(0)
	for i, name := range d.ask {
		n := after.of[name].Size
		if size += n; i > begin && (i-begin == partNames || size > partBytes) {
			list = append(list, d.ask[begin:i])
			begin, size = i, n
		}
	}
	return append(list, d.ask[begin:])
}

// get fetches names of the copy, those alone and nothing below them, as parts of an archive one after the
// other in a file.
func (r *running) get(ctx context.Context, parts [][]string, to *os.File, came chan<- io.Reader) error {
	way, over := r.progress("downloading")
	defer over()
	all, names, begin := 0, 0, int64(0)
	for _, part := range parts {
		all += len(part)
	}
	for _, part := range parts {
		names += len(part)
		size, err := r.part(ctx, part, to, begin, func(done, total int64) {
			if way != nil {
				way(begin+done, (begin+total)*int64(all)/int64(names))
			}
		})
		if err != nil {
			return err
		}
		came <- io.NewSectionReader(to, begin, size)
		begin += size
	}
	return nil
}

// part makes an archive of names and fetches it. What came over broken is fetched again.
func (r *running) part(ctx context.Context, names []string, to *os.File, begin int64, way func(done, total int64)) (size int64, err error) {
	name, busy := tempPath(r.copy, r.label+"down"), ""
	if r.busy {
		busy = "1"
	}
	var made packed
	err = r.withNames(ctx, names, func(file, sum string) error {
		return r.word(ctx, r.program, true, &made, packWord, r.copy, file, sum, name, busy)
	})
	if err != nil {
		return 0, err
	}
	for n := 1; ; n++ {
		var sum hash.Hash
		took := &shown{total: made.Size, shown: way}
		err := r.provider.service.GetFile(ctx, r.box, name, func() (io.Writer, error) {
			sum = sha256.New()
			if err := to.Truncate(begin); err != nil {
				return nil, err
			}
			took.to, took.done = io.MultiWriter(to, sum), 0
			_, err := to.Seek(begin, io.SeekStart)
			return took, err
		})
		if err != nil {
			return 0, err
		}
		if hex.EncodeToString(sum.Sum(nil)) == made.Sum {
			return took.done, nil
		}
		if n == 3 {
			return 0, errGarbled
		}
	}
}

// keepRefused gives what came a name, so that nothing of it is lost.
func (r *running) keepRefused(f *os.File) (string, error) {
	const name = "refused.tar.zst"
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
