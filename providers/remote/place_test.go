package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// A stub is a service with one sandbox, which prints and holds what it is told to.
type stub struct {
	Service
	prints, holds string
	status        error
	has           profiles.Size
	destroyed     []string
	late          int // so many times Find lists nothing
}

func (s *stub) Name() string { return "stub" }

func (s *stub) Find(_ context.Context, labels map[string]string) ([]Sandbox, error) {
	if s.late--; s.late >= 0 {
		return nil, nil
	}
	return []Sandbox{{ID: "one", Labels: labels}}, nil
}

func (s *stub) Status(context.Context, string) (*Sandbox, error) {
	return &Sandbox{ID: "one", CPUs: s.has.CPUs, MemoryMB: s.has.MemoryMB}, s.status
}

func (s *stub) Destroy(_ context.Context, id string) error {
	s.destroyed = append(s.destroyed, id)
	return nil
}

func (s *stub) Exec(_ context.Context, _ *Sandbox, e *Exec) (int, error) {
	_, err := io.WriteString(e.Out, s.prints)
	return 0, err
}

func (s *stub) PutFile(context.Context, *Sandbox, string, *Archive) error { return nil }

func (s *stub) GetFile(_ context.Context, _ *Sandbox, _ string, begin func() (io.Writer, error)) error {
	to, err := begin()
	if err == nil {
		_, err = io.Copy(to, strings.NewReader(s.holds))
	}
	return err
}

// A sandbox whose answer was lost, and that cannot be made ready, is destroyed: nobody would know of it.
func TestLostSandbox(t *testing.T) {
	s := &stub{}
	l := &place{p: New(s, Facts{}, providers.Host{}), labels: map[string]string{providers.LabelKey: "a"}}
	box, err := l.lost(t.Context())
	require.NoError(t, err, "the control")
	require.Equal(t, "one", box.ID)
	require.Empty(t, s.destroyed)
	s.status = errors.New("not ready")
	_, err = l.lost(t.Context())
	require.ErrorIs(t, err, s.status)
	require.Equal(t, []string{"one"}, s.destroyed)

	s.status, s.late, l.p.patient.late = nil, looks-1, 0
	box, err = l.lost(t.Context())
	require.NoError(t, err, "the list is late")
	require.Equal(t, "one", box.ID)
	s.late = looks
	box, err = l.lost(t.Context())
	require.NoError(t, err)
	require.Nil(t, box, "none was made")
}

// What comes has the size that was announced, and all of it is no larger than any download may be: a hostile place fills no disk.
func TestPackedSize(t *testing.T) {
	s := &stub{holds: "text"}
	l := &place{p: New(s, Facts{}, providers.Host{}), at: at{Copy: "/home/u/proj"}, box: &Sandbox{}}
	file, err := os.Create(filepath.Join(t.TempDir(), "down"))
	require.NoError(t, err)
	defer file.Close()
	begin := int64(0)
	get := func(size int64) error {
		s.prints = fmt.Sprintf(`{"Sum":%q,"Size":%d,"Parts":1}`, sumOf([]byte("text")), size)
		_, err := l.pack(t.Context(), []string{"a"}, file, begin, nil)
		return err
	}
	require.NoError(t, get(4), "the control")
	require.ErrorIs(t, get(3), errGarbled)
	info, err := file.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.ErrorContains(t, get(0), "0 bytes")
	require.ErrorContains(t, get(1<<40), "1099511627776 bytes")
	begin = 1000<<20 - 4
	require.NoError(t, get(4), "the last of many")
	begin++
	require.ErrorContains(t, get(4), "may have 3")
}

// The record of another version is refused by a message that says who can read it.
func TestOlderRecord(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	l := &place{session: root}
	require.NoError(t, os.WriteFile(filepath.Join(dir, sessions.UnfetchedName), []byte(`{"v":2,"copy":"/c","before":{"entries":[{"p":"a","k":102}],"reflog":0},"manifest":{}}`), 0o600))
	_, err = l.recorded()
	require.ErrorContains(t, err, "another version of pccrun")
}
