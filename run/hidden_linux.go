package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/providers"
)

// tellHidden writes it where the command can read it.
func (f *flow) tellHidden() {
	f.hidden = f.local.Hidden()
	for _, h := range f.hidden {
		f.log.Emit(h)
	}
	if len(f.hidden) > 0 && f.denials != nil {
		f.log.Start()
	}
}

// unpassed returns the descriptors that whoever started pccrun has opened for it, and that
// the command did not get: one digit, as a shell's redirection has. Those beyond are what
// programs forget to close.
func (f *flow) unpassed() (list []events.Hidden) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 || fd > 9 || slices.Contains(f.req.PassFDs, fd) || f.req.Events == "fd:"+e.Name() {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			n := strconv.Itoa(fd)
			list = append(list, events.Hidden{What: "use descriptor " + n, Rule: "not passed", Hint: "--pass-fd " + n})
		}
	}
	return list
}

// sayHidden prints it when the command has failed, or with -v. What only programs of the host
// execute is printed if the command names it, and where a shell found no program only what says so.
func (f *flow) sayHidden(code int, end *providers.Result) {
	failed := end != nil && end.Signal == 0 && end.Code != 0 && (code < timedOut || code == notExecutable || code == notFound || code == 128 || code == 255) // as git ends
	if end == nil || f.local == nil || f.req.Quiet || !failed && !f.req.Verbose {
		return
	}
	unstarted := code == notExecutable || code == notFound
	list := slices.DeleteFunc(slices.Concat(f.hidden, f.local.Lacks(f.req.Command, end.Code), f.unpassed()), func(h events.Hidden) bool {
		flag, path, _ := strings.Cut(h.Hint, " ")
		_, err := os.Stat(path)
		file, reads := strings.CutPrefix(h.What, "read ")
		rule, is := f.policy.Protected(file)
		hosts := reads && is && !rule.Review && !strings.Contains(strings.Join(f.req.Command, " "), filepath.Base(file)) // as .envrc
		ended := flag == "--socket" && shell.Quote(path) == path && errors.Is(err, os.ErrNotExist)                       // of an agent
		if _, err := os.Lstat(file); reads && h.Rule != "" && errors.Is(err, os.ErrNotExist) {
			ended = true // with a worktree that is in quarantine
		}
		return ended || (hosts || (h.Code != 0 || unstarted) && h.Code != end.Code) && !f.req.Verbose
	})
	for i, h := range list {
		if i == maxSaid {
			messages.Say(fmt.Sprintf("hidden: %d more, see pccrun logs", len(list)-maxSaid))
			break
		}
		messages.Say(messages.Allow("hidden: "+h.What, h.Hint))
	}
	_, denied := f.log.Denied()
	told := slices.ContainsFunc(denied, func(d events.DenialCount) bool { return strings.HasPrefix(d.Guarantee, "fs.") })
	if pinned := f.local.Pinned(); pinned != "" && !told && !unstarted {
		messages.Say(pinned)
	}
}
