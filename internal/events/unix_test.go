//go:build unix

package events

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

func mkfifo(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) }

func itoa(n int) string { return strconv.Itoa(n) }

// inherited returns a descriptor as one comes from a caller, who let it
// outlive execve(2).
func inherited(t *testing.T, f *os.File) int {
	fd, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	return fd
}

func closeFD(fd int) { _ = unix.Close(fd) }

// A link in the workspace may be an earlier command's: it leads no log away.
func TestTargetThroughLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"ws/sub", "logs", "keys"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	for name, to := range map[string]string{
		"ws/abs": top + "/keys", "ws/rel": "../keys", "ws/sub/up": "..", "outside": "logs", "around": "ws/abs", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(top, name)))
	}
	for _, name := range []string{"ws/abs", "ws/rel", "ws/sub/up/sub", "around", "outside/../ws/rel"} {
		_, err := Target(filepath.Join(top, name)+"/e.jsonl", top+"/ws")
		require.ErrorContains(t, err, "it goes through the link "+top+"/ws/", name)
		s, err := Target(filepath.Join(top, name)+"/e.jsonl", "/elsewhere")
		require.NoError(t, err, "control: no workspace of ours")
		w, err := s.Open()
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.FileExists(t, top+"/keys/e.jsonl")
	for _, name := range []string{"outside", "logs", "ws/sub", "ws/./sub/../sub"} {
		s, err := Target(top+"/"+name+"/ok.jsonl", top+"/ws")
		require.NoError(t, err, name)
		w, err := s.Open()
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.FileExists(t, top+"/"+name+"/ok.jsonl")
	}
	_, err = Target(top+"/loop/e", top+"/ws")
	require.ErrorIs(t, err, unix.ELOOP)
	_, err = Target(top+"/logs/", top+"/ws")
	require.ErrorIs(t, err, unix.EISDIR)
	t.Chdir(top + "/ws")
	_, err = Target("rel/e.jsonl", top+"/ws")
	require.ErrorContains(t, err, "it goes through the link")
}

// TestSharedPipe: runs that share a pipe do not write into each other's lines, however
// many they have at once. The control writes the same to the pipe as it is.
func TestSharedPipe(t *testing.T) {
	for _, whole := range []bool{true, false} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		var group sync.WaitGroup
		for run := range 4 {
			fd := inherited(t, w)
			s, err := Target("fd:"+itoa(fd), "")
			require.NoError(t, err)
			sink, err := s.Open()
			require.NoError(t, err)
			if !whole {
				sink = sink.(wholeLines).File
			}
			group.Go(func() {
				defer closeFD(fd)
				defer sink.Close()
				var batch []byte
				for i := range 500 {
					batch = Append(batch, uint64(i), time.Now(), strings.Repeat(itoa(run), 40), Denial{Guarantee: "net.allowlist", What: strings.Repeat(itoa(run), 100+i)})
				}
				for range 5 {
					if _, err := sink.Write(batch); err != nil {
						t.Error(err)
					}
				}
			})
		}
		w.Close()
		lines, torn := 0, 0
		for br := bufio.NewReader(r); ; lines++ {
			line, err := br.ReadBytes('\n')
			if err == io.EOF {
				break
			}
			rec, err := Parse(bytes.TrimSuffix(line, []byte("\n")))
			if d, ok := rec.Event.(Denial); err != nil || !ok || d.What == "" || strings.Trim(d.What+rec.Session, d.What[:1]) != "" {
				torn++
			}
		}
		group.Wait()
		r.Close()
		if whole {
			require.Zero(t, torn)
			require.Equal(t, 4*500*5, lines)
		} else {
			require.NotZero(t, torn, "the control")
		}
	}
}

// TestUnfinishedLine: what a run left that was killed while it wrote does not swallow
// the next one's first event.
func TestUnfinishedLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "{}\n": "{}\n", `{"v":1,"se`: `{"v":1,"se` + "\n"} {
		path := filepath.Join(t.TempDir(), "e.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := Target(path, "")
		require.NoError(t, err)
		l := NewLog("s", s)
		l.Emit(Exit{})
		require.NoError(t, l.Close(await.Patience))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		rest, ok := strings.CutPrefix(string(b), want)
		require.True(t, ok, "%q", b)
		_, err = Parse([]byte(strings.TrimSuffix(rest, "\n")))
		require.NoError(t, err)
	}
}
