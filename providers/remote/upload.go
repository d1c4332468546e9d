package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// upload is what goes up, packed while the sandbox is made: each waits until it is.
type upload struct {
	bytes   int64 // of the workspace's files
	program func() (*packedProgram, error)
	tree    func() (*packedTree, error)
	remove  func()
}

// packedProgram is pccrun's program for the place, and by gzip.
type packedProgram struct{ plain, small content }

// packedTree is the archive of the workspace, in a file that has no name.
type packedTree struct {
	content
	sent *filesync.Sent
}

// open looks through the workspace, and opens none of what it would send.
func (p *plan) open(ctx context.Context, since *filesync.Since) (*filesync.Tree, error) {
	host := &p.provider.host
	config := Variable(host.Environ, "XDG_CONFIG_HOME")
	hides := func(rel string) string {
		return Below(profiles.Read, p.policy, rel)
	}
	kept, by, err := profiles.UploadIgnore(p.policy.Home)
	if err != nil {
		return nil, err
	}
	up := filesync.Up{Git: host.Git, Excludes: filesync.UserIgnore(p.policy.Home, config), Kept: kept, KeptBy: by, Hides: hides, Since: since}
	return filesync.Open(ctx, p.policy.Workspace, up)
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

// readProgram returns pccrun's program for the place.
func (p *Provider) readProgram() ([]byte, error) {
	f, err := p.openProgram()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// pack begins to write what goes up, which goes on while the sandbox is made. A workspace that is too
// large is refused before anything is made that costs money.
func (p *plan) pack(ctx context.Context, l *place, since *filesync.Since) (*upload, error) {
	tree, err := p.open(ctx, since)
	if err != nil {
		return nil, err
	}
	file, err := l.spool("up.tar.zst")
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	u := &upload{bytes: tree.Bytes, program: sync.OnceValues(l.p.packProgram)}
	u.tree = sync.OnceValues(func() (*packedTree, error) {
		defer tree.Close()
		sum := sha256.New()
		sent, err := write(ctx, tree, io.MultiWriter(file, sum))
		if err != nil {
			return nil, err
		}
		size, err := file.Seek(0, io.SeekEnd)
		return &packedTree{content{ReaderAt: file, size: size, sum: hex.EncodeToString(sum.Sum(nil))}, sent}, err
	})
	u.remove = func() {
		stop()
		_, _ = u.tree()
		file.Close()
	}
	go func() { _, _ = u.tree() }()
	if since == nil {
		go func() { _, _ = u.program() }()
	}
	return u, nil
}

// packProgram returns pccrun's program both ways, and compresses it where it is as it is.
func (p *Provider) packProgram() (*packedProgram, error) {
	text, err := p.readProgram()
	if err != nil {
		return nil, err
	}
	var plain, small bytes.Buffer
	r, err := filesync.Uncompressed(bytes.NewReader(text))
	if err == nil {
		_, err = plain.ReadFrom(r)
	}
	if err == nil && plain.Len() == len(text) {
		w, _ := gzip.NewWriterLevel(&small, gzip.BestSpeed)
		_, err = w.Write(text)
		err = errors.Join(err, w.Close()) // before the text is taken: it ends the stream
		text = small.Bytes()
	}
	packed := &packedProgram{contentOf(plain.Bytes()), contentOf(text)}
	packed.plain.mode = 0o755
	return packed, err
}

// furnish has pccrun's program and the copy be in the sandbox, and records what a download goes by. A program that an
// earlier run left is the same, and no command there could change it.
func (p *plan) furnish(ctx context.Context, l *place, u *upload) (*fetchable, error) {
	transfer, stop := context.WithTimeout(ctx, l.p.patient.transfer)
	defer stop()
	name := ".pccrun-" + p.command.Label
	var dir inside.Text
	if l.Program != "" {
		if err := l.word(transfer, adoptWord, input{}, &dir, l.Program, name); err != nil {
			return nil, fmt.Errorf("%s: take over pccrun itself: %w", l.p.Name(), err)
		}
	} else {
		uploaded := path.Join(cmp.Or(l.p.facts.Home, "/tmp"), name)
		if err := l.uploadProgram(transfer, u, uploaded, p.name); err != nil {
			return nil, fmt.Errorf("%s: upload pccrun itself: %w", l.p.Name(), err)
		}
		l.Program = path.Join(l.Home, name)
		if err := l.word(transfer, installWord, input{}, &dir, l.Program, name, uploaded); err != nil {
			return nil, fmt.Errorf("%s: install pccrun itself: %w", l.p.Name(), err)
		}
	}
	l.Program = string(dir)
	tree, err := u.tree()
	if err != nil {
		return nil, err
	}
	if err := l.upload(transfer, tree, p.policy.Workspace); err != nil {
		return nil, err
	}
	by := p.fetchable(l.at, tree.sent)
	return by, l.begin(ctx, by)
}

// uploadProgram has the program in a directory there, and executes it, so that the directories are made. It goes
// compressed where the image has a gzip, else as it is. One that is larger than the provider's files may be is put
// together by a shell of the image.
func (l *place) uploadProgram(ctx context.Context, u *upload, dir, name string) error {
	const what = "uploading pccrun itself"
	to := path.Join(dir, "pccrun")
	there := func(argv ...string) error {
		_, _, err := Output(ctx, l.p.service, l.box, false, argv...)
		return err
	}
	whole := func(file string, c content) error {
		in, err := l.put(ctx, what, file, c)
		if err == nil && in.parts > 1 {
			err = there("/bin/sh", "-c", joinParts, file)
		}
		return err
	}
	program, err := u.program()
	if err != nil {
		return err
	}
	l.Program = dir
	return thrice(func() error {
		if err := whole(to+".gz", program.small); err != nil {
			return err
		}
		chmod := there("/bin/sh", "-c", `gzip -df "$0".gz && chmod 755 "$0"`, to) // at once: each call of some providers takes a second
		if chmod != nil {
			if there("gzip", "-df", to+".gz") != nil {
				if err := whole(to, program.plain); err != nil {
					return err
				}
			}
			chmod = there("chmod", "755", to) // a provider may set modes itself
		}
		var p prepared
		err := l.word(ctx, prepareWord, input{to, program.plain.sum, 1}, &p, name, path.Base(dir), l.p.facts.Home)
		if err != nil && !errors.Is(err, errGarbled) {
			return errors.Join(fmt.Errorf("it cannot be executed there, on %s: %w", l.p.arch(), err), chmod)
		}
		l.Home = string(p.Home)
		if err == nil && (!path.IsAbs(l.Home) || path.Clean(l.Home) != l.Home || strings.ContainsAny(l.Home, "\x00\n")) {
			return fmt.Errorf("no home in the answer: %q", events.Cut(l.Home))
		}
		l.Environ = []string{"HOME=" + l.Home, "PATH=" + string(p.Path), "USER=" + string(p.User), "LOGNAME=" + string(p.User)}
		l.Copy = path.Join(l.Home, name)
		return err
	})
}

// joinParts makes a file of its parts ([partName]). Executed again, where the answer was lost, it leaves the file as it is.
const joinParts = `[ ! -e "$0".0000 ] || { cat "$0".[0-9]* > "$0" && rm "$0".[0-9]*; }`

// upload sends the workspace, and says what stays here.
func (l *place) upload(ctx context.Context, u *packedTree, workspace string) error {
	for _, left := range u.sent.Left() {
		if left.Notable() {
			l.warn("left out: %s: %s", left.Path, left.Why)
		}
	}
	for _, f := range u.sent.Findings {
		l.observer.Warning(events.Warning{Text: "secret, left out: " + f.String(), Hint: "remove it from the file"})
	}
	if len(u.sent.Gone) > 0 {
		if err := l.remove(ctx, l.Copy, u.sent.Gone); err != nil {
			return fmt.Errorf("%s: remove what is not in the workspace: %w", l.p.Name(), err)
		}
	}
	if err := l.send(ctx, "uploading", u.content, extractWord, nil, l.Copy); err != nil {
		return fmt.Errorf("%s: upload: %w", l.p.Name(), err)
	}
	if branch := branchOf(workspace); branch != "" {
		if err := l.word(ctx, repositoryWord, input{}, nil, l.Copy, branch); err != nil {
			l.warn("the copy is no git repository: %v", err)
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
