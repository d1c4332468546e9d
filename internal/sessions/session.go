package sessions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
)

// Delay is how long a run lasts before its directory is made. What is over
// sooner, and leaves nothing to tell, costs one system call: [Home.RanSince].
const Delay = 50 * time.Millisecond

// A Session is the launcher's own run. Its methods may be called at the same
// time.
type Session struct {
	home Home

	mu    sync.Mutex
	info  Info
	timer *time.Timer
	root  *os.Root // the home; open from when the directory is made
	dir   *os.Root
	lock  *state.Lock
	mark  *os.File // of who was root, and cannot open it at the end
	err   error
	ended bool
	ready chan struct{} // closed when dir or err is set, or nothing will be
}

// Begin returns a session that makes its directory after [Delay]. Of info,
// the time, the launcher and the boot are filled in, and secrets
// in Argv blanked; the ID is made if it is "". Call it once the command
// runs, so that nothing of it stands in the way.
func (h Home) Begin(info Info) *Session {
	if info.Started.IsZero() {
		info.Started = time.Now().UTC()
	}
	if info.ID == "" {
		info.ID = NewID(info.Started)
	}
	info.Argv = events.Redact(info.Argv)
	s := &Session{home: h, info: info, ready: make(chan struct{})}
	s.mu.Lock() // on a loaded machine the timer may fire before it is stored
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(Delay, func() { _, _ = s.Dir() })
	return s
}

// ID returns the session's name.
func (s *Session) ID() string { return s.info.ID }

// Dir returns the session's directory, and makes it first if need be. The
// session closes it at its end.
func (s *Session) Dir() (*os.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == nil && s.err == nil {
		if s.ended {
			return nil, os.ErrClosed
		}
		s.timer.Stop()
		if s.err = s.make(); s.err != nil {
			s.err = fmt.Errorf("session %s: %w", s.info.ID, s.err)
		}
		close(s.ready)
	}
	return s.dir, s.err
}

// make makes the directory. The lock is taken before session.json tells
// others that there is a session.
func (s *Session) make() (err error) {
	s.info.Launcher = Self()
	s.info.Sandbox = identify(s.info.Sandbox.Pid)
	root, err := state.Open(s.home.dir, s.info.Workspace)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			root.Close()
		}
	}()
	if err := root.Mkdir(s.info.ID, 0o700); err != nil {
		return err
	}
	dir, err := root.OpenRoot(s.info.ID)
	if err != nil {
		return err
	}
	lock, err := state.TryLock(dir, lockName)
	if err == nil {
		err = s.write(dir)
	}
	if err != nil {
		dir.Close()
		_ = root.RemoveAll(s.info.ID)
		return err
	}
	s.root, s.dir, s.lock = root, dir, lock
	// Now, and not at the end: a launcher that was root is no longer then. Few
	// launches so much as count them, and of those few look through them all.
	if rand.IntN(gcTurn) == 0 {
		if all, _ := names(root); len(onlyIDs(all)) > keepCount && rand.IntN(len(all)) < gcTurn*gcShare {
			_, _ = s.home.GC(GCOptions{EndedOnly: true})
		}
	}
	return nil
}

func (s *Session) write(dir *os.Root) error {
	return state.WriteFile(dir, infoName, s.info.append(nil), state.Fast)
}

// Update changes what others see of the session, for example once the
// sandbox's pid 1 is known.
func (s *Session) Update(change func(*Info)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.info)
	if s.dir == nil || s.ended {
		return nil
	}
	s.info.Sandbox = identify(s.info.Sandbox.Pid)
	return s.write(s.dir)
}

// Keep says that the directory is wanted after the run, and why, in one
// word: "denials", "stash", "log".
func (s *Session) Keep(why string) { s.keep(why) }

// keep reports whether the directory stood already, which then does not say so.
func (s *Session) keep(why string) (stood bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.info.Kept, why) {
		s.info.Kept = append(s.info.Kept, why)
	}
	return s.dir != nil
}

// Want says the same at once, on the disk, and returns the directory: should the
// launcher be killed, or the disk be full at the end, then whoever looks finds what
// is wanted, and no gc takes the session for one that left nothing.
func (s *Session) Want(why string) (*os.Root, error) {
	stood := s.keep(why)
	dir, err := s.Dir()
	if err == nil && stood {
		err = s.Update(func(*Info) {})
	}
	return dir, err
}

// Path is where the directory is, or will be.
func (s *Session) Path() string { return filepath.Join(s.home.dir, s.info.ID) }

// Drop takes a reason back that [Session.Keep] gave.
func (s *Session) Drop(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.Kept = slices.DeleteFunc(s.info.Kept, func(have string) bool { return have == why })
}

// Hand gives the directory, made if need be, to another identity: that of a
// launcher that is about to stop being root and must still write to it.
func (s *Session) Hand(uid, gid int) error {
	dir, err := s.Dir()
	if err != nil {
		return err
	}
	for _, name := range []string{infoName, lockName, "."} {
		if err := dir.Lchown(name, uid, gid); err != nil {
			return fmt.Errorf("session %s: %w", s.info.ID, err)
		}
	}
	s.mark, _ = s.root.OpenFile(markName(s.info.Workspace), os.O_WRONLY|os.O_CREATE, 0o600)
	return nil
}

// Events is the sink that writes events.jsonl. It holds the events back
// until the directory is made; by [Session.Decide] it is, or never will be. No
// more than 16 MiB are written.
func (s *Session) Events() events.Sink {
	return events.Sink{
		Name: "session " + s.info.ID,
		Max:  16 << 20,
		Wanted: func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.dir != nil || s.err != nil
		},
		Open: func() (io.WriteCloser, error) {
			<-s.ready
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.dir == nil {
				return nil, errors.Join(s.err, events.ErrNotWanted)
			}
			return s.dir.OpenFile(EventsName, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		},
	}
}

// Decide decides whether the session leaves something: if anything is kept,
// it makes the directory now, else one that is not made yet never will be.
// Call it before the events' [events.Log.Close], which else would wait for
// the directory; [Session.End] comes after it.
func (s *Session) Decide() error {
	s.mu.Lock()
	kept := len(s.info.Kept) > 0
	if !kept && s.dir == nil && s.err == nil && !s.ended {
		s.timer.Stop()
		s.ended = true
		close(s.ready)
	}
	s.mu.Unlock()
	if kept {
		_, err := s.Dir()
		return err
	}
	return nil
}

// End ends the session: its directory is removed, or kept with the exit code
// if something in it is wanted.
func (s *Session) End(code int) error {
	if err := s.Decide(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.info.Kept) == 0 && s.err == nil {
		s.home.setMark(s.info.Workspace, s.mark)
	}
	if s.dir == nil {
		return s.err
	}
	s.ended = true
	s.info.Ended, s.info.Code = time.Now().UTC(), code
	var err error
	if len(s.info.Kept) > 0 {
		err = s.write(s.dir)
		makeMark(s.root, s.info)
	} else if err = state.RemoveAll(s.root, s.info.ID); errors.Is(err, fs.ErrPermission) {
		// We were root, and see no further than our own directory now. Whoever
		// still may removes the empty one, at the latest gc.
		err = empty(s.dir)
	}
	_ = s.mark.Close()
	err = errors.Join(err, s.lock.Release(), s.dir.Close(), s.root.Close())
	s.dir, s.err = nil, nil
	return err
}

// empty removes what is in a directory.
func empty(dir *os.Root) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, state.RemoveAll(dir, e.Name()))
	}
	return err
}
