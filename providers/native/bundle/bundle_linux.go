// Package bundle writes native's plan as an OCI runtime bundle (runtime-spec 1.1): config.json, a
// rootfs, and the files that replace hidden ones.
//
// It promises that what the format cannot express is named as a loss, and that nothing that stands
// is overwritten.
package bundle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/seccomp"
)

// A Bundle is an OCI runtime bundle to be written.
type Bundle struct {
	Dir    string
	Spec   specs.Spec
	Losses []Loss

	owner namespaces.Identity // of its files
	files []file              // containing directories first
}

// A file is what a bundle holds beside its configuration: a directory, a
// link, or a file.
type file struct {
	name, text, link string
	mode             os.FileMode
}

// A Loss is what a plan promises and a bundle does not.
type Loss struct{ Name, Text string }

// Lose names a loss; of one name there is one.
func (b *Bundle) Lose(name, text string) {
	if i := slices.IndexFunc(b.Losses, func(l Loss) bool { return l.Name == name }); i >= 0 {
		b.Losses[i].Text += "; " + text
		return
	}
	b.Losses = append(b.Losses, Loss{name, text})
}

// path is where a file of the bundle lies.
func (b *Bundle) path(name string) string { return filepath.Join(b.Dir, name) }

// New turns a plan into a bundle. The host's own tree cannot be the rootfs
// as it is: runc (1.1.5) fails at the control groups and cannot pivot to /, and
// crun (1.8.1) mounts nothing on /. So the rootfs is a directory of the bundle
// with what / has, each directory lent by a mount.
func New(run *native.Planned, dir string) (*Bundle, error) {
	p := run.Plan
	b := &Bundle{Dir: dir, owner: p.Identity, files: []file{{name: "mask"}, {name: "rootfs", mode: os.ModeDir | 0o755}}}
	b.Spec = specs.Spec{
		Version:  "1.1.0", // recursive mount options and mapped owners; runc 1.1 reads it too
		Hostname: namespaces.Hostname,
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			Args: slices.Concat(p.Command.Paths[:1], p.Command.Argv[1:]), Env: p.Command.Env, Cwd: p.Command.Dir,
			Capabilities: &specs.LinuxCapabilities{}, NoNewPrivileges: true, Rlimits: ociRlimits(p.Rlimits), OOMScoreAdj: &p.OOMScore,
		},
		Linux: &specs.Linux{RootfsPropagation: "private"}, // of the root alone, as the format has it
	}
	for _, kind := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.MountNamespace, specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
		b.Spec.Linux.Namespaces = append(b.Spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
	b.Spec.Linux.ReadonlyPaths, b.Spec.Linux.MaskedPaths = p.KernelFiles()
	b.identity(p)
	if err := b.mounts(p); err != nil {
		return nil, err
	}
	b.resources(run)
	if err := b.seccomp(p); err != nil {
		return nil, err
	}
	b.lost(p)
	return b, b.carried()
}

// identity maps the users. The runtime becomes 0 of the user namespace while it
// sets up, so there must be one: the caller himself where he is not root, else
// a number beside the identity that root gives itself up for.
func (b *Bundle) identity(p *namespaces.Plan) {
	id, linux, user := p.Identity, b.Spec.Linux, &b.Spec.Process.User
	one := func(inside, outside int) specs.LinuxIDMapping {
		return specs.LinuxIDMapping{ContainerID: uint32(inside), HostID: uint32(outside), Size: 1}
	}
	umask := uint32(p.Command.Umask)
	user.Umask = &umask
	if !id.Root {
		linux.UIDMappings, linux.GIDMappings = []specs.LinuxIDMapping{one(0, id.HostUID)}, []specs.LinuxIDMapping{one(0, id.HostGID)}
		b.Lose("uid", fmt.Sprintf("the command is uid 0 inside, not %d: a rootless runtime maps the caller to uid 0", id.UID))
		return
	}
	linux.UIDMappings = []specs.LinuxIDMapping{one(0, id.HostUID+1), one(id.UID, id.HostUID)}
	linux.GIDMappings = []specs.LinuxIDMapping{one(0, id.HostGID+1), one(id.GID, id.HostGID)}
	user.UID, user.GID = uint32(id.UID), uint32(id.GID)
	b.Lose("owners", "files of other users need idmapped mounts, which runc has since 1.2: with an older one they belong to nobody and cannot be written")
}

// mount adds a mount. What the host mounts later below what it lends is not seen inside.
func (b *Bundle) mount(target, source, kind string, options ...string) *specs.Mount {
	if kind == "bind" {
		options = append(options, "rprivate")
	}
	b.Spec.Mounts = append(b.Spec.Mounts, specs.Mount{Destination: target, Source: source, Type: kind, Options: options})
	return &b.Spec.Mounts[len(b.Spec.Mounts)-1]
}

// mounts makes the tree of the plan: the host's, read-only, with the kernel's
// file systems of its own, and then one mount after the other.
func (b *Bundle) mounts(p *namespaces.Plan) error {
	if err := b.host(); err != nil {
		return err
	}
	b.mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev")
	b.mount("/dev", "tmpfs", "tmpfs", "nosuid", "noexec", "mode=755", "size=64k", "ro")
	b.mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")
	b.mount("/dev/shm", "tmpfs", "tmpfs", b.fresh(p)...)
	b.mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro")
	for i, m := range p.Mounts {
		entry := strconv.Itoa(i)
		switch {
		case m.OverLink:
			b.Lose("link."+entry, m.Target+": a link that is protected in place can be replaced")
		case m.Kind == namespaces.Scratch:
			b.Lose("scratch."+entry, m.Target+": writes there are denied; a run discards them")
			m.ReadOnly = true
			if err := b.bind(p, m); err != nil {
				return err
			}
		case m.Kind == namespaces.Bind, m.Kind == namespaces.PrivateCopy: // without a copy, as any pin
			if err := b.bind(p, m); err != nil {
				return err
			}
		case m.Kind == namespaces.Mask && m.Optional:
			b.Spec.Linux.MaskedPaths = append(b.Spec.Linux.MaskedPaths, m.Target) // no failure if it is gone by then
		case m.Kind == namespaces.Mask:
			b.mount(m.Target, b.path("mask"), "bind", "bind", "ro", "nosuid", "nodev")
		case m.Kind == namespaces.Text && strings.HasPrefix(m.Target, "/proc/"):
			b.Lose("text."+entry, m.Target+": runc mounts nothing in /proc, so it is the host's file")
		case m.Kind == namespaces.Text:
			b.files = append(b.files, file{name: "text-" + entry, text: m.Text, mode: os.FileMode(m.Mode)})
			b.mount(m.Target, b.path("text-"+entry), "bind", "bind", "ro", "nosuid", "nodev")
		default:
			b.directory(p, m, "fresh-"+entry)
		}
	}
	return nil
}

// host lends what stands in the host's root, read-only.
func (b *Bundle) host() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := "/" + e.Name()
		f := file{name: "rootfs" + path, mode: 0o644}
		switch {
		case e.Type()&os.ModeSymlink != 0:
			if f.link, err = os.Readlink(path); err != nil {
				return err
			}
		case e.IsDir():
			f.mode = os.ModeDir | 0o755
			info, err := e.Info()
			if err != nil {
				return err
			}
			closed := b.owner.Root && info.Mode().Perm()&0o001 == 0 // to the identity as well: crun cannot even lend it
			if path != "/proc" && path != "/dev" && path != "/sys" && !closed {
				b.mount(path, path, "bind", "rbind", "rro", "rnosuid", "rnodev")
			}
		case e.Type().IsRegular():
			b.mount(path, path, "bind", "bind", "ro", "nosuid", "nodev")
		default:
			continue
		}
		b.files = append(b.files, f)
	}
	return nil
}

// fresh returns the options of a private directory.
func (b *Bundle) fresh(p *namespaces.Plan) []string {
	user := b.Spec.Process.User
	options := []string{"nosuid", "nodev", "mode=755", fmt.Sprintf("uid=%d", user.UID), fmt.Sprintf("gid=%d", user.GID)}
	if p.Disk > 0 {
		options = append(options, fmt.Sprintf("size=%d", p.Disk), fmt.Sprintf("nr_inodes=%d", p.Inodes))
	}
	return options
}

// bind lends a file or directory of the host.
func (b *Bundle) bind(p *namespaces.Plan, m namespaces.Mount) error {
	options := []string{"bind", "nosuid", "nodev"}
	if m.ReadOnly {
		options = append(options, "ro")
	}
	if m.Tree {
		for i, o := range options {
			options[i] = "r" + o
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(m.Source, &st); err != nil {
		return fmt.Errorf("lstat %s: %w", m.Source, err)
	}
	mount := b.mount(m.Target, m.Source, "bind", options...)
	if id := p.Identity; id.Root {
		mount.UIDMappings = []specs.LinuxIDMapping{{ContainerID: st.Uid, HostID: uint32(id.HostUID), Size: 1}}
		mount.GIDMappings = []specs.LinuxIDMapping{{ContainerID: st.Gid, HostID: uint32(id.HostGID), Size: 1}}
	}
	return nil
}

// directory makes a directory that hides the host's. What must stand in it is
// made in the bundle, since the format has no links and the runtime would make
// directories for mounts its own; where it can be written, the runtime copies
// that into the tmpfs (tmpcopyup of runc and crun).
func (b *Bundle) directory(p *namespaces.Plan, m namespaces.Mount, name string) {
	filled := len(m.Stubs) > 0
	if m.ReadOnly || filled {
		b.files = append(b.files, file{name: name, mode: os.ModeDir | 0o755})
		for _, s := range m.Stubs {
			f := file{name: name + "/" + s.Name, mode: 0o644}
			switch s.Node {
			case namespaces.Directory:
				f.mode = os.ModeDir | 0o755
			case namespaces.Link:
				f.link = s.Link
			default:
				f.text = s.Text
			}
			b.files = append(b.files, f)
		}
		b.mount(m.Target, b.path(name), "bind", "bind", "ro", "nosuid", "nodev")
	}
	if m.ReadOnly {
		return
	}
	options := b.fresh(p)
	if filled {
		options = append(options, "tmpcopyup")
	}
	b.mount(m.Target, "tmpfs", "tmpfs", options...)
}

// resources bounds the control group. A rootless runtime fails where it has no
// group of its own, so for that only what the policy requires is asked for.
func (b *Bundle) resources(run *native.Planned) {
	want, id := &run.Policy.Resources, run.Plan.Identity
	r := &specs.LinuxResources{}
	required := func(g profiles.Guarantee) bool {
		return slices.ContainsFunc(run.Policy.Requirements, func(q profiles.Requirement) bool { return q.Guarantee == g && q.Required })
	}
	for _, l := range [...]struct {
		guarantee profiles.Guarantee
		value     int64
		set       func(n int64)
	}{
		{profiles.ResMemory, want.Memory.Value, func(n int64) { r.Memory = &specs.LinuxMemory{Limit: &n, Swap: &n} }},
		{profiles.ResCPU, want.CPUs.Value, func(n int64) {
			period, quota := uint64(100_000), n*100
			r.CPU = &specs.LinuxCPU{Period: &period, Quota: &quota}
		}},
		{profiles.ResPids, want.Pids.Value, func(n int64) { r.Pids = &specs.LinuxPids{Limit: &n} }},
	} {
		switch {
		case l.value == 0:
		case id.Root || required(l.guarantee):
			l.set(l.value)
		default:
			b.Lose(string(l.guarantee), "limits that only the defaults set are left out: a rootless runtime may have no control group")
		}
	}
	if id.Root {
		r.Devices = []specs.LinuxDeviceCgroup{{Access: "rwm"}} // none, but for the runtime's own few
	}
	b.Spec.Linux.Resources = r
}

// seccomp takes the filter over: a built-in one as it is known by its name, the
// user's as he wrote it.
func (b *Bundle) seccomp(p *namespaces.Plan) error {
	b.Spec.Linux.Seccomp = &specs.LinuxSeccomp{}
	text, losses, err := seccomp.OCI(p.FilterName, runtime.GOARCH)
	if p.FilterName != seccomp.NameDefault && p.FilterName != seccomp.NameNested {
		text, err = profiles.ReadFile(p.FilterName)
		losses = []string{"pccrun's second seccomp filter, under your own, is left out"}
	}
	if err != nil {
		return err
	}
	if p.Sockets != nil {
		b.Lose(string(profiles.IPCUnix), "unix sockets can be made, and reach those that the host binds later in a shown directory")
	}
	for _, l := range losses {
		b.Lose("seccomp", strings.TrimPrefix(l, "seccomp: "))
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields() // Docker's form, which the runtime would half understand
	if err := d.Decode(b.Spec.Linux.Seccomp); err != nil {
		return fmt.Errorf("%s: not in the form of a runtime's configuration: %w", p.FilterName, err)
	}
	return nil
}

// ociRlimits names the limits as the format does.
func ociRlimits(list []namespaces.Rlimit) (out []specs.POSIXRlimit) {
	names := map[int]string{unix.RLIMIT_NOFILE: "NOFILE", unix.RLIMIT_CORE: "CORE", unix.RLIMIT_RTPRIO: "RTPRIO", unix.RLIMIT_NICE: "NICE", unix.RLIMIT_FSIZE: "FSIZE", unix.RLIMIT_SIGPENDING: "SIGPENDING", unix.RLIMIT_NPROC: "NPROC"}
	for _, r := range list {
		out = append(out, specs.POSIXRlimit{Type: "RLIMIT_" + names[r.Resource], Soft: r.Soft, Hard: r.Hard})
	}
	return out
}

// lost names what no bundle has.
func (b *Bundle) lost(p *namespaces.Plan) {
	if p.Landlock > 0 {
		b.Lose("landlock", "mounts alone prevent writes; Landlock is left out")
	}
	b.Lose("floor", "pccrun's second seccomp filter is left out")
	b.Lose("remount-watcher", "a hidden or protected file that the host replaces during the run is not covered again")
	b.Lose(string(profiles.LaunchIntegrity), "the runtime finds files by name, and does not check that they are those of the plan")
	b.Lose("pid1", "the command is pid 1: it must reap orphans, and signals that it does not handle are ignored")
	b.Lose("argv0", "argument 0 of the command is its path")
	b.Lose("keyring", "the runtime decides about the session keyring: runc makes one")
	if p.Watch != nil && p.Watch.Broker {
		b.Lose(string(profiles.FSProtect), "the command can create protected names")
	}
	b.Lose("review", "there is no post-run check: nothing is quarantined, restored or reported at exit")
	if !p.Nested {
		b.Lose("userns-limit", "only the filter prevents user namespaces inside")
	}
	if p.Disk > 0 {
		b.Lose(string(profiles.ResDisk), "each private directory may take the whole --disk size")
	}
	if p.Deadline > 0 {
		b.Lose(string(profiles.ResTime), "the time limit of "+p.Deadline.String()+" is left out")
	}
	if p.CPUs != nil {
		b.Lose(string(profiles.ResCPU), "the command may run on all processors")
	}
}

// carried refuses what JSON would change: a path that is not UTF-8 would name
// another file.
func (b *Bundle) carried() error {
	list := slices.Concat(b.Spec.Process.Args, b.Spec.Process.Env, []string{b.Spec.Process.Cwd, b.Dir}, b.Spec.Linux.MaskedPaths)
	for _, m := range b.Spec.Mounts {
		list = append(list, m.Destination, m.Source)
	}
	for _, s := range list {
		if !utf8.ValidString(s) {
			return fmt.Errorf("spec: %s: not UTF-8", strconv.Quote(s))
		}
	}
	return nil
}

// Write makes the bundle, the configuration last. It overwrites nothing.
func (b *Bundle) Write() error {
	if err := os.MkdirAll(b.Dir, 0o755); err != nil {
		return err
	}
	b.Spec.Annotations = map[string]string{}
	for _, l := range b.Losses {
		b.Spec.Annotations["org.pccrun.loss."+l.Name] = l.Text
	}
	text, err := json.MarshalIndent(b.Spec, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range append(b.files, file{name: "config.json", text: string(text) + "\n", mode: 0o600}) {
		path := b.path(f.name)
		if err := f.write(path); err != nil {
			return err
		}
		if b.owner.Root && f.name != "config.json" {
			if err := os.Lchown(path, b.owner.HostUID, b.owner.HostGID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *file) write(path string) error {
	switch {
	case f.link != "":
		return os.Symlink(f.link, path)
	case f.mode.IsDir():
		return os.Mkdir(path, f.mode.Perm())
	}
	made, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode.Perm())
	if err != nil {
		return err
	}
	if _, err := made.WriteString(f.text); err != nil {
		made.Close()
		return err
	}
	return made.Close()
}
