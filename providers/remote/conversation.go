package remote

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/workspace"
)

// conversationName is what has come of it, in the session's directory.
const conversationName = "conversation"

// sendConversation has the directories be in the home there as they are here, and nothing else in them.
func sendConversation(p *plan, ctx context.Context, l *place) error {
	c := p.command.Conversation
	if c == nil {
		return nil
	}
	if err := l.remove(ctx, l.Home, c.Dirs); err != nil {
		return fmt.Errorf("%s: clear what an earlier run left in the home: %w", l.p.Name(), err)
	}
	for _, dir := range c.Dirs {
		text, err := packConversation(c.Home, dir)
		if err == nil {
			err = l.send(ctx, "", contentOf(text), extractWord, nil, path.Join(l.Home, dir))
		}
		if err != nil {
			return fmt.Errorf("%s: upload ~/%s: %w", l.p.Name(), dir, err)
		}
	}
	return nil
}

// packConversation makes an archive of the regular files of a directory of a home, of none where it does not stand. No link is
// followed.
func packConversation(home, dir string) ([]byte, error) {
	var b bytes.Buffer
	small, err := filesync.Compress(&b)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(small)
	var root *os.Root
	top, err := os.OpenRoot(home)
	if err == nil {
		defer top.Close()
		root, err = top.OpenRoot(dir)
	}
	if err == nil {
		defer root.Close()
		err = packFiles(archive, root)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	err = errors.Join(err, archive.Close(), small.Close())
	return b.Bytes(), err
}

func packFiles(archive *tar.Writer, root *os.Root) error {
	list, err := homes.FilesBelow(root)
	for _, f := range list {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: f.Name + "/", Mode: 0o700}
		var text []byte
		if err == nil && !f.Dir {
			text, err = state.ReadFile(root, f.Name, homes.ConversationBytes+1)
			h = &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: 0o600, Size: int64(len(text))}
		}
		if err == nil {
			err = archive.WriteHeader(h)
		}
		if err == nil {
			_, err = archive.Write(text)
		}
	}
	return err
}

// fetchConversation brings the directories back, in the place of those that are here. That it could not is said: what the command
// did is worth more than its conversation.
func fetchConversation(p *plan, ctx context.Context, l *place) {
	c := p.command.Conversation
	if c == nil {
		return
	}
	for _, dir := range c.Dirs {
		if err := bringConversation(ctx, l, c.Home, dir); err != nil {
			l.warn("~/%s is not brought back, so the agent cannot go on with its conversation: %v", dir, err)
		}
	}
}

func bringConversation(ctx context.Context, there *place, home, dir string) error {
	own := *there
	l := &own
	l.Copy = path.Join(l.Home, dir) // what is listed and packed
	after, err := l.list(ctx, "")
	if err != nil {
		return err
	}
	d, bytes := &difference{after: after, ask: map[string]bool{}}, int64(0)
	for name, e := range after.of {
		if e.Kind == workspace.File {
			d.add(name)
			bytes += e.Size
		}
	}
	if len(d.ask) > homes.ConversationFiles || bytes > homes.ConversationBytes {
		return homes.ErrLong
	}
	l.named("not downloaded", d.refuse(down(d)))
	if len(d.ask) == 0 {
		return nil
	}
	file, err := l.spool("conversation.tar.zst")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := state.RemoveAll(l.session, conversationName); err != nil {
		return err
	}
	defer func() { _ = state.RemoveAll(l.session, conversationName) }()
	if _, err := l.receive(ctx, filepath.Join(l.session.Name(), conversationName), d, file, down(d)); err != nil {
		return err
	}
	came, err := l.session.OpenRoot(conversationName)
	if err != nil {
		return err
	}
	defer came.Close()
	return homes.Replace(home, dir, came, func(name string) string { return name })
}
