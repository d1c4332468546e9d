package namespaces

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/profiles"
)

// Facts are what the kernel says of itself and of the caller.
type Facts struct {
	Identity    Identity
	Landlock    int                 // ABI version, 0 where the kernel has none
	Readable    []Readable          // under strict: see [Plan.Readable]
	Texts       []Mount             // files that have a content of their own inside
	LocalNames  []string            // that this machine's /etc/hosts gives the loopback's addresses, without the machine's own
	Files, Core unix.Rlimit         // the caller's own limits of open files and core dumps
	Pending     unix.Rlimit         // and of signals that wait, and timers
	Limits      map[int]unix.Rlimit // what else of the caller's own is known, by resource
	CoreHandler string              // see [Plan.CoreHandler]
	OOMScore    int                 // see [Plan.OOMScore]
}

// Identity is who the command is, outside and inside.
type Identity struct {
	HostUID, HostGID int  // in the host's user namespace
	UID, GID         int  // as the command sees itself
	Root             bool // pccrun was started as root and gives that up
}

// Examine asks the kernel what the plan of a policy needs to know, on a machine that was surveyed.
func Examine(policy *profiles.Policy, s *survey.Survey) (*Facts, error) {
	f := &Facts{Identity: WhoAmI(), Landlock: landlockABI()}
	// Go raised the soft limit of open files at its start; the caller's shell
	// still has the one that the command should get.
	if unix.Prlimit(os.Getppid(), unix.RLIMIT_NOFILE, nil, &f.Files) != nil {
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &f.Files); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		f.Files.Cur = min(f.Files.Cur, 1024)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &f.Core); err != nil {
		return nil, os.NewSyscallError("getrlimit", err)
	}
	if unix.Getrlimit(unix.RLIMIT_SIGPENDING, &f.Pending) != nil {
		f.Pending = unix.Rlimit{} // a kernel that has none bounds nothing
	}
	f.Limits = map[int]unix.Rlimit{unix.RLIMIT_CORE: f.Core}
	for _, resource := range [...]int{unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil {
			f.Limits[resource] = limit
		}
	}
	var err error
	if f.OOMScore, err = oomScore("/proc/self/oom_score_adj"); err != nil {
		return nil, err
	}
	f.CoreHandler = coreHandler(readCorePattern(corePattern), f.Core.Max)
	hosts, _ := procfs.Short("/etc/hosts")
	own, _ := os.Hostname()
	four, six := loopbackNames(string(hosts), own)
	f.LocalNames = slices.DeleteFunc(slices.Concat(four, six), func(name string) bool { return name == "localhost" })
	f.texts(policy, four, six)
	for _, t := range s.Texts {
		f.cover(t.Path, t.Content, "the same, which ssh takes from its user only")
	}
	if policy.Strict && !policy.Nested && f.Landlock >= landlockRefer {
		f.Readable, err = readable(policy, s.Places, f.Identity.Root)
	}
	return f, err
}

// oomRaise is how much sooner the kernel ends what runs inside than the
// launcher when the machine is out of memory: a fifth of the memory's worth,
// as much as a desktop gives its applications over its session.
const oomRaise = 200

// oomScore reads this process's own adjustment, proc_pid_oom_score_adj(5), and
// returns that of the sandbox.
func oomScore(path string) (int, error) {
	text, err := procfs.Short(path)
	if err != nil {
		return 0, err
	}
	own, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return min(own+oomRaise, 1000), nil
}

// texts are the files of /etc that say who and where one is: four and six are the names of the loopback's addresses.
func (f *Facts) texts(policy *profiles.Policy, four, six []string) {
	f.text(policy, "/etc/hosts", "127.0.0.1 "+strings.Join(append([]string{"localhost", Hostname}, four...), " ")+"\n::1 "+strings.Join(append(six, "ip6-localhost", "ip6-loopback"), " ")+"\n")
	// Each name by which a machine can be told from another, in the form that programs expect.
	const machine = "70636372756e00000000000000000000\n"
	for _, path := range [...]string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/var/db/dbus/machine-id", "/usr/local/etc/machine-id"} {
		f.text(policy, path, machine)
	}
	f.text(policy, "/etc/hostname", Hostname+"\n")
	f.text(policy, "/etc/machine-info", "\n")
	f.text(policy, "/etc/hostid", "pccr")
	f.text(policy, "/var/lib/cloud/data/instance-id", Hostname+"\n")
	if !policy.Nested { // else the kernel makes no /proc in a sandbox within this one
		f.text(policy, "/proc/sys/kernel/random/boot_id", "70636372-756e-4000-8000-000000000000\n")
	}
	// No search list: the host name has no domain, so there is none by
	// default either, and with "search ." musl finds no name of one label.
	if n := &policy.Network; len(n.Allow) > 0 || len(n.Local) > 0 {
		f.text(policy, "/etc/resolv.conf", "nameserver "+network.Resolver().String()+"\n")
	} else if !slices.Contains(policy.Without, profiles.LayerNetns) { // where no route leads elsewhere
		f.text(policy, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
	}
	if id := f.Identity; id.Root {
		f.text(policy, "/etc/passwd", id.passwd("/etc/passwd", fmt.Sprintf("pccrun:x:%d:%d:pccrun:%s:/bin/bash", id.UID, id.GID, policy.Home)))
		f.text(policy, "/etc/group", id.passwd("/etc/group", fmt.Sprintf("pccrun:x:%d:", id.GID)))
	}
}

// maxNames bounds the local names: some have a list of servers of advertisements there, and all stand in a variable too.
const maxNames = 64

// loopbackNames returns the names of 127.0.0.1, and those of ::1, which localhost is one of unless the file has it for
// 127.0.0.1 alone, as Ubuntu's does: a server that listens at the first address of localhost then is where it is outside.
func loopbackNames(hosts, own string) (four, six []string) {
	own, _, _ = strings.Cut(own, ".")
	said := false
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "127.0.0.1" && fields[0] != "::1" {
			continue
		}
		for _, name := range fields[1:] {
			first, _, _ := strings.Cut(name, ".")
			odd := strings.ContainsFunc(name, func(r rune) bool {
				return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._", r)
			})
			said = said || name == "localhost"
			list := &four
			if fields[0] == "::1" {
				list = &six
			} else if name == "localhost" {
				continue // it always is
			}
			if len(*list) < maxNames && !odd && (first != own || name == "localhost") && !strings.HasPrefix(name, "ip6-") && !slices.Contains(*list, name) {
				*list = append(*list, name)
			}
		}
	}
	if !said {
		six = append(six, "localhost")
	}
	return four, six
}

func (f *Facts) text(policy *profiles.Policy, path, text string) {
	if policy.Decide(path).Access == profiles.Read {
		f.cover(path, text, "who and where the command is")
	}
}

// cover plans another text for a file of the host's. A link, as resolv.conf often is one into /run, is covered itself.
func (f *Facts) cover(path, text, why string) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return
	}
	if n := survey.NodeOf(st.Mode); n == File || n == Link {
		f.Texts = append(f.Texts, Mount{Kind: Text, Target: path, OverLink: n == Link, ReadOnly: true, Mode: 0o644, Text: text, Donated: -1, Why: why})
	}
}
