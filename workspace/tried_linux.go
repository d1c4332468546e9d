package workspace

import (
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Nobody can look for config.lock often enough to be sure that it was there. But
// git gives it the mode of the configuration (chmod(2)) before it renames it,
// and nothing else that it keeps beside one: that the attributes of something in
// a directory of git changed, and that names came and went there, tells what git
// wanted. The kernel says the first by a signal, which is on its way before git
// goes on, and the second by the directory's time.
//
// An editor in which a message of a commit is written does the same: it gives its
// own files there modes, and the message. They stand beside it meanwhile, so what
// comes then is the editor's.

// A ConfigWatch hears of it for the configurations of git that a run cannot
// change, from before its command starts. It costs each of them a descriptor and
// a few calls, and the run nothing unless git tries.
type ConfigWatch struct {
	since   int64 // by the clock that files have
	configs []triedConfig
	signals chan os.Signal
	last    chan struct{} // closed when lastTried has come
	done    chan struct{} // nobody takes signals any more
}

// The fields below dir are those of the goroutine that takes the signals, until
// that has ended.
type triedConfig struct {
	path   string
	dir    int
	edited time.Time // when files of an editor were last seen beside it
	again  int       // how often it was listened for once more
	tried  bool
}

// The signals of [ConfigWatch]: one for each configuration, and a last one,
// which comes after all others that were sent before (signal(7): the lowest
// number first).
const (
	firstTried = unix.Signal(44)
	maxTried   = 16
	lastTried  = firstTried + maxTried
)

// notifyAttributes is DN_ATTRIB of linux/fcntl.h, once: an event more would be a
// signal more in a queue that all processes of a user share.
const notifyAttributes = 0x20

// An editor is listened past so often, and for so long after its files were last
// seen: they go a moment after the last attribute that it changes.
const (
	maxEdited = 256
	editTime  = 100 * time.Millisecond
)

// ownerThread is F_OWNER_TID of linux/fcntl.h.
const ownerThread = 0

// flushTime bounds how long the end of a run waits for a signal of its own, which
// comes as soon as the thread has a processor.
const flushTime = 2 * time.Second

// WatchConfigs begins to listen for what the records of one run name; nil if there
// is nothing to listen for, or nobody can.
func WatchConfigs(records ...*Standing) *ConfigWatch {
	var configs []Known
	for _, r := range records {
		configs = append(configs, r.pinnedConfigs()...)
	}
	if len(configs) == 0 {
		return nil
	}
	w := &ConfigWatch{since: records[0].Start.Add(-racy).UnixNano(), signals: make(chan os.Signal, maxTried+1),
		last: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(w.signals, lastTried)
	for _, k := range configs[:min(len(configs), maxTried)] {
		if changesModes(k.Path) {
			continue // its lock is looked for, as that of those which are too many
		}
		if dir, err := listen(k.Path, firstTried+unix.Signal(len(w.configs))); err == nil {
			signal.Notify(w.signals, firstTried+unix.Signal(len(w.configs)))
			w.configs = append(w.configs, triedConfig{path: k.Path, dir: dir})
		}
	}
	go w.take()
	return w
}

// take takes the signals as they come: whether an editor is at work can be seen
// only then.
func (w *ConfigWatch) take() {
	defer close(w.done)
	last := sync.OnceFunc(func() { close(w.last) }) // anybody of the user's may send one
	for sig := range w.signals {
		if sig == lastTried {
			last()
			continue
		}
		c := &w.configs[sig.(unix.Signal)-firstTried]
		c.tried = c.tried || !c.editor(w.since) || c.listen() != nil
	}
}

// editor reports whether the attributes that have just changed beside a
// configuration are an editor's doing, as far as can be seen.
func (c *triedConfig) editor(since int64) bool {
	if c.again++; c.again > maxEdited {
		return false
	}
	now := time.Now()
	if editorIn(c.dir, since, now.Add(-editTime).UnixNano()) {
		c.edited = now
	}
	return now.Sub(c.edited) < editTime
}

// editorIn reports whether files that an editor makes while it works stand in a
// directory, among the first that it has: .x.swp of vim, .#x and #x# of emacs. What
// vim has for a moment when it writes, x~ and 4913, others leave there, so it has to
// have changed just now.
func editorIn(dir int, since, justNow int64) bool {
	at, err := beneath.Open(dir, "", unix.O_RDONLY|unix.O_DIRECTORY) // with a place of its own in it
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(at), "")
	defer f.Close()
	names, _ := f.Readdirnames(1024)
	return slices.ContainsFunc(names, func(name string) bool {
		oldest := since
		switch {
		case len(name) > len(".x.sw") && name[0] == '.' && name[len(name)-4:len(name)-1] == ".sw":
		case strings.HasPrefix(name, ".#"), name[0] == '#' && strings.HasSuffix(name, "#"):
		case strings.HasSuffix(name, "~"), name == "4913":
			oldest = justNow
		default:
			return false
		}
		var st unix.Stat_t
		return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ctim.Nano() >= oldest
	})
}

// changesModes reports whether git gives other files beside a configuration modes as
// well, at each commit, since that says so: what is shared, and an index that is split.
func changesModes(path string) bool {
	at, name, err := parentOf(path)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	b, err := readOwn(at, name, vcs.MaxConfig)
	if err != nil {
		return false
	}
	all, _ := vcs.ParseConfig(b)
	return slices.ContainsFunc(all, func(s vcs.Setting) bool {
		return s.Name() == "core.sharedrepository" || s.Name() == "core.splitindex"
	})
}

// listen has a signal sent when the attributes of something beside a file change.
func listen(path string, sig unix.Signal) (dir int, err error) {
	at, _, err := parentOf(path)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	dir, err = beneath.Open(at, "", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	// To one thread, which takes the signals that it has in their order; of two
	// threads the second could be before the first. The first thread of a process
	// lives as long as that does.
	owner := struct{ kind, id int32 }{ownerThread, int32(os.Getpid())} // struct f_owner_ex
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(dir), unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner))); errno != 0 {
		unix.Close(dir)
		return -1, errno
	}
	for _, set := range [...][2]int{{unix.F_SETSIG, int(sig)}, {unix.F_NOTIFY, notifyAttributes}} {
		if _, err := unix.FcntlInt(uintptr(dir), set[0], set[1]); err != nil {
			unix.Close(dir)
			return -1, err
		}
	}
	return dir, nil
}

// listen has the next signal sent; to whom and which stays as it is.
func (c *triedConfig) listen() error {
	_, err := unix.FcntlInt(uintptr(c.dir), unix.F_NOTIFY, notifyAttributes)
	return err
}

// End ends it, when no process of the run lives. Of what it has heard it returns
// what [ConfigWatch.Tried] is asked afterwards.
func (w *ConfigWatch) End() {
	if w == nil {
		return
	}
	if slices.ContainsFunc(w.configs, w.named) {
		// What was sent is delivered when the thread comes to run.
		_ = unix.Tgkill(os.Getpid(), os.Getpid(), lastTried)
		select {
		case <-w.last:
		case <-time.After(flushTime):
		}
	}
	signal.Stop(w.signals)
	close(w.signals)
	<-w.done
	for i := range w.configs {
		c := &w.configs[i]
		c.tried = c.tried && w.named(*c)
	}
	for _, c := range w.configs {
		unix.Close(c.dir)
	}
}

// named reports whether names came or went where a configuration lies.
func (w *ConfigWatch) named(c triedConfig) bool {
	var st unix.Stat_t
	return unix.Fstat(c.dir, &st) == nil && st.Mtim.Nano() >= w.since
}

// Tried reports whether git has tried to change a configuration.
func (w *ConfigWatch) Tried(path string) bool {
	return w != nil && slices.ContainsFunc(w.configs, func(c triedConfig) bool { return c.path == path && c.tried })
}
