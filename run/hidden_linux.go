package run

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/survey"
)

// maxHidden bounds what is told of that is hidden.
const maxHidden = 256

// dropped are variables that name a socket of the host's by its path, and what stands
// before that there.
var dropped = [...]struct{ name, prefix string }{{"SSH_AUTH_SOCK", ""}, {"DOCKER_HOST", "unix://"}, {"GPG_AGENT_INFO", ""}}

// hidden returns what the command will not find although the host has it: what the plan
// covers in the workspace, and variables that name a socket and are not passed. All of it is
// known from the plan: nothing is looked at, and nobody has tried it yet.
func (l *launch) hidden() (list []events.Hidden) {
	p := l.policy
	for i := range l.run.Plan.Mounts {
		m := &l.run.Plan.Mounts[i]
		rel, in := strings.CutPrefix(m.Target, p.Workspace+"/")
		covers := m.Kind == namespaces.Mask || m.Kind == namespaces.Fresh && m.ReadOnly
		if !in || !covers || len(list) == maxHidden {
			continue
		}
		h := events.Hidden{What: "read " + m.Target, Rule: m.Why, Hint: "--read " + shell.Quote(rel)}
		d := p.Decide(m.Target)
		if d.Rule.Origin.Source == "flag" {
			continue // whoever hides it knows
		}
		if d.Access == profiles.Hide {
			h.Rule = "hide " + d.Rule.Text() + " (" + d.Rule.Origin.String() + ")"
		} else if m.Why == survey.SocketHidden {
			h.What, h.Hint = "connect "+m.Target, "--socket "+shell.Quote(m.Target)
		}
		list = append(list, h)
	}
	for _, v := range dropped {
		value := l.req.Host.Getenv(v.name)
		path, is := strings.CutPrefix(value, v.prefix)
		path, _, _ = strings.Cut(path, ":")
		if is && strings.HasPrefix(path, "/") && p.DecideEnv(v.name).Action == profiles.EnvScrubbed {
			list = append(list, events.Hidden{What: "find " + v.name, Rule: "not in environment.pass", Hint: "--env " + v.name + " --socket " + shell.Quote(path)})
		}
	}
	return list
}

// tellHidden writes it where the command can read it.
func (l *launch) tellHidden() {
	list := l.hidden()
	for _, h := range list {
		l.log.Emit(h)
	}
	if len(list) > 0 && l.denials != nil {
		l.log.Start()
	}
}

// unpassed returns the descriptors that whoever started pccrun has opened for it, and that
// the command did not get: one digit, as a shell's redirection has. Those beyond are what
// programs forget to close.
func (l *launch) unpassed() (list []events.Hidden) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 || fd > 9 || slices.Contains(l.req.PassFDs, fd) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			n := strconv.Itoa(fd)
			list = append(list, events.Hidden{What: "use descriptor " + n, Rule: "not passed", Hint: "--pass-fd " + n})
		}
	}
	return list
}

// sayHidden prints it when the command has failed, or with -v.
func (l *launch) sayHidden(code int, end *providers.Result) {
	failed := end != nil && end.Signal == 0 && end.Code != 0 && code < 124
	if end == nil || l.req.Quiet || !failed && !l.req.Verbose {
		return
	}
	list := slices.Concat(l.hidden(), l.unpassed())
	for i, h := range list {
		if i == maxSaid {
			messages.Say(fmt.Sprintf("hidden: %d more, see pccrun logs", len(list)-maxSaid))
			break
		}
		messages.Say("hidden: " + h.What + ", allowed by " + h.Hint)
	}
	if denied, _ := l.log.Denied(); denied == 0 && l.run.Pinned() != "" {
		messages.Say(l.run.Pinned())
	}
}
