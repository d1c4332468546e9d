package namespaces

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// This is what takes rights away once all stands, and starts the command: the end
// of [compiler.rest], in its order.

// namespace opens one of the sandbox's namespaces, for the remount watcher: once pid 1
// is not dumpable nobody else can.
func (c *compiler) namespace(name string) inside.Reg {
	return c.Get(unix.SYS_OPENAT, inside.Result(c.proc), c.Str("self/ns/"+name), inside.Int(unix.O_RDONLY|unix.O_CLOEXEC))
}

// restrict gives up every privilege, for pid 1 and so for all that it starts.
func (c *compiler) restrict(p *Plan) {
	if len(p.CPUs) > 0 {
		c.Step("limit processors")
		c.Call(unix.SYS_SCHED_SETAFFINITY, inside.Int(0), inside.Int(len(p.CPUs)), c.Buf(p.CPUs))
	}
	if c.has(profiles.LayerRlimits) {
		c.Step("raise the OOM score")
		c.writeAt(inside.Result(c.proc), "self/oom_score_adj", strconv.Itoa(p.OOMScore))
		c.limit(p, func(r Rlimit) bool { return r.Resource != unix.RLIMIT_NOFILE }) // which comes when nothing is opened any more
	}
	if c.has(profiles.LayerNoNewPrivs) {
		c.Step("forbid new privileges")
		c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_NO_NEW_PRIVS), inside.Int(1), inside.Int(0), inside.Int(0), inside.Int(0))
	}
	if p.Landlock >= landlockRefer && c.has(profiles.LayerLandlock) {
		c.landlock(p) // while CAP_SYS_ADMIN lets us do without the line above
	}
	c.Step("watch for children")
	set := uint64(1) << (unix.SIGCHLD - 1)
	c.signals = c.Get(unix.SYS_SIGNALFD4, inside.Int(-1), inside.Ptr(c.Program, set), inside.Int(8), inside.Int(unix.SFD_CLOEXEC|unix.SFD_NONBLOCK))
	c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_NAME), c.Str("pccrun"))
}

// limit sets the limits that are chosen.
func (c *compiler) limit(p *Plan, chosen func(Rlimit) bool) {
	for _, r := range p.Rlimits {
		if !chosen(r) {
			continue
		}
		r, stands := r.bounded()
		if stands && r.Resource == unix.RLIMIT_CORE {
			continue // the filter of a pccrun around this one refuses to set it, to whatever value
		}
		c.Step("limit " + r.Name)
		c.Call(unix.SYS_PRLIMIT64, inside.Int(0), inside.Int(r.Resource), inside.Ptr(c.Program, unix.Rlimit{Cur: r.Soft, Max: r.Hard}), inside.Int(0))
	}
}

// bounded returns a limit as it can be set: below the hard limit that this
// process has, which containers and limits.conf(5) lower. It reports whether
// the limit stands already.
func (r Rlimit) bounded() (bounded Rlimit, stands bool) {
	var now unix.Rlimit
	if unix.Getrlimit(r.Resource, &now) != nil {
		return r, false
	}
	r.Hard = min(r.Hard, now.Max)
	r.Soft = min(r.Soft, r.Hard)
	return r, now.Cur == r.Soft && now.Max == r.Hard
}

func (c *compiler) landlock(p *Plan) {
	c.Step("restrict files with Landlock")
	attr := landlockRuleset{fs: landlockWrite}
	if len(p.Readable) > 0 {
		attr.fs = landlockAll(p.Landlock)
	}
	if c.Nested {
		attr.fs = 0 // under a file ruleset every mount inside is refused
	}
	size := unsafe.Sizeof(attr.fs)
	if p.Landlock >= landlockScope {
		attr.scoped = landlockScopes
		size = unsafe.Sizeof(attr)
	}
	if attr.fs == 0 && attr.scoped == 0 {
		return
	}
	rules := c.Get(unix.SYS_LANDLOCK_CREATE_RULESET, inside.Ptr(c.Program, attr), inside.Int(size), inside.Int(0))
	if attr.fs != 0 {
		for _, g := range c.writable {
			rights := attr.fs
			if g.file {
				rights &= landlockFile
			}
			if g.brokered {
				rights &^= landlockMake
				if p.Watch.Opens {
					rights &^= landlockContent
				}
			}
			c.allow(rules, rights, g.fd)
			if g.perhaps {
				c.Attempt()
			}
		}
		for _, r := range p.Readable {
			c.Step("allow reading by Landlock: " + r.Path)
			fd := lookUpIfThere(c.Program, r.Path, 0)
			c.allow(rules, r.Rights(), inside.Result(fd))
			c.Allow(unix.EBADF) // gone since the survey
			c.Call(unix.SYS_CLOSE, inside.Result(fd))
			c.Allow(unix.EBADF)
		}
		c.Step("restrict files with Landlock")
	}
	c.Call(unix.SYS_LANDLOCK_RESTRICT_SELF, inside.Result(rules), inside.Int(0))
}

// allow adds a rule: rights below what a descriptor is of.
func (c *compiler) allow(rules inside.Reg, rights uint64, fd inside.Arg) {
	c.Call(unix.SYS_LANDLOCK_ADD_RULE, inside.Result(rules), inside.Int(unix.LANDLOCK_RULE_PATH_BENEATH), c.Beneath(rights, fd), inside.Int(0))
}

// filter drops the capabilities and installs the seccomp filters, last: they
// refuse most of what came before. pid 1 runs under them too.
func (c *compiler) filter(p *Plan) {
	if c.has(profiles.LayerDumpable) {
		c.Step("close /proc/1 to the sandbox")
		c.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_DUMPABLE), inside.Int(0), inside.Int(0), inside.Int(0), inside.Int(0))
	}
	install := func() {
		c.watch(p)
		if c.has(profiles.LayerRlimits) {
			c.limit(p, func(r Rlimit) bool { return r.Resource == unix.RLIMIT_NOFILE })
		}
		for _, f := range [...]struct {
			layer   profiles.Layer
			program []byte
		}{{profiles.LayerSockets, p.Sockets}, {profiles.LayerFloor, p.Floor}, {profiles.LayerSeccomp, p.Filter}} { // the other filter may refuse to have one more
			if c.has(f.layer) && len(f.program) > 0 {
				c.Step("install the filter " + string(f.layer))
				c.Call(unix.SYS_SECCOMP, inside.Int(unix.SECCOMP_SET_MODE_FILTER), inside.Int(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW), c.Program.Filter(f.program))
			}
		}
	}
	if !c.has(profiles.LayerCaps) {
		install()
		return
	}
	c.Step("drop all capabilities")
	c.DropBounding()
	if !c.has(profiles.LayerNoNewPrivs) {
		install() // without no_new_privs it takes CAP_SYS_ADMIN
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	c.Call(unix.SYS_CAPSET, inside.Ptr(c.Program, header), inside.Ptr(c.Program, [2]unix.CapUserData{}))
	if c.has(profiles.LayerNoNewPrivs) {
		install()
	}
}

// stepWatch is where a supervisor around this one shows: a process has one at most.
const stepWatch = "install the filter that asks the launcher"

// watch installs the filter that asks, and hands its listener to the launcher;
// where there is none, the word alone says so. It comes before the other
// filters, which may refuse what it takes. Neither pid 1 nor the command keeps
// the listener: who holds it answers for everybody.
func (c *compiler) watch(p *Plan) {
	if p.Watch == nil {
		return
	}
	c.Step(stepWatch)
	listener := c.Get(unix.SYS_SECCOMP, inside.Int(unix.SECCOMP_SET_MODE_FILTER), inside.Int(p.Watch.Flags), c.Program.Filter(p.Watch.Filter))
	if !p.Watch.Required {
		c.Allow(unix.EBUSY, unix.EINVAL) // there is one; or the kernel has none
	}
	c.SendFDs(c.control, listener)
	c.Allow(unix.EBADF)
	c.Call(unix.SYS_CLOSE, inside.Result(listener))
	c.Allow(unix.EBADF)
	c.Tell(inside.Watched)
}

// command is what the second copy does before it becomes the command.
func (c *compiler) command(p *Plan, io *Stdio, slave inside.Reg) {
	c.Step("start a process group")
	if slave == 0 {
		c.Call(unix.SYS_SETSID)
	} else {
		c.Call(unix.SYS_SETPGID, inside.Int(0), inside.Int(0))
	}
	if slave != 0 && !io.Background {
		c.Call(unix.SYS_IOCTL, inside.Result(slave), inside.Int(unix.TIOCSPGRP), c.Pid())
	}
	c.Step("set the standard descriptors")
	for i, fd := range io.Fds {
		switch {
		case fd == Terminal:
			c.Call(unix.SYS_DUP3, inside.Result(slave), inside.Int(i), inside.Int(0))
		case fd != i:
			c.Call(unix.SYS_DUP3, inside.Int(fd), inside.Int(i), inside.Int(0))
		}
	}
	c.environ = c.become(p, p.PassFDs, p.Command.Paths, p.Command.Argv, p.Command.Env)
}

// become ends as a command, which has 0, 1 and 2 already.
func (c *compiler) become(p *Plan, passed []int, paths, argv, env []string) *inside.Environ {
	if c.has(profiles.LayerFds) {
		c.Call(unix.SYS_CLOSE_RANGE, inside.Int(3), inside.Int(^uint32(0)), inside.Int(unix.CLOSE_RANGE_CLOEXEC))
	}
	for _, fd := range passed {
		c.Step("pass descriptor " + strconv.Itoa(fd))
		c.Call(unix.SYS_FCNTL, inside.Int(fd), inside.Int(unix.F_SETFD), inside.Int(0))
	}
	c.Call(unix.SYS_UMASK, inside.Int(p.Command.Umask))
	c.Step("reset signals")
	c.DefaultSignals()
	c.Call(unix.SYS_RT_SIGPROCMASK, inside.Int(unix.SIG_SETMASK), inside.Ptr(c.Program, uint64(0)), inside.Int(0), inside.Int(8))
	c.Step("execute " + argv[0])
	return c.Exec(paths, argv, env)
}
