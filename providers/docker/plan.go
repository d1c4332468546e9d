//go:build unix

package docker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/seccomp"
)

// Where pccrun's own stands in a container.
const (
	insideDir   = "/.pccrun"
	insideFile  = insideDir + "/pccrun"
	canaryName  = "canary"
	canaryFile  = insideDir + "/" + canaryName
	denialsName = "denials.jsonl"
	denialsPath = "/run/pccrun/" + denialsName
)

// oomScore has the kernel end what is inside before the launcher.
const oomScore = 200

// Numbers of limits, as Linux has them, getrlimit(2).
const (
	rlimitFsize  = 1
	rlimitCore   = 4
	rlimitNofile = 7
)

// ownTasks is room for the threads of pid 1, and of what becomes the command.
const ownTasks = 16

// sentryTasks is room for the threads of gVisor's kernel, which the engine counts
// with the command's.
const sentryTasks = 512

// plan is a run that is decided.
type plan struct {
	provider *Provider
	policy   *profiles.Policy
	facts    *Facts
	label    string
	ask      bool // the user is asked about a host that no rule speaks of
	uid, gid int

	config  container.Config
	host    container.HostConfig
	inside  inside.Plan
	environ []string // of the command, without the variables of the egress
	layer   []byte   // of the image, where it is the host's own system

	onHost
	gaps
	endpoints  map[string]bool // sockets and FIFOs of this machine
	names      map[string]bool // paths at which something is mounted already
	renumbered []renumbered    // what gVisor numbers anew
	mayBeGone  map[string]bool // what is covered, and may be gone by the start
	answers    []profiles.Answer
	warnings   []string
}

// onHost is what the launcher makes on this machine for the engine to bind.
type onHost struct {
	dir   string // for a run
	files []file // in it
	needs []homes.Need
}

// gaps are what mounts do not keep.
type gaps struct {
	unlinked         string // a link that should be pinned and cannot be
	hidesFile        bool   // a single file is hidden: its cover does not stay where the host replaces it, as a directory's does
	foldingDir       string // a directory in which .ENV is .env; "" for none
	hidesInWorkspace bool   // and something is hidden below the workspace
}

// renumbered is a mount of [inside.Plan] whose number is this machine's.
type renumbered struct {
	source   string
	dev, ino uint64
	mount    int
}

// file is what the launcher makes for the engine to bind: a directory, a link or a text.
type file struct {
	Name, Text, Link string
	Copy             string // the file whose content it is
	Mode             uint32
	Dir              bool
}

// Plan decides a run.
func (p *Provider) Plan(
	policy *profiles.Policy,
	found *providers.Survey,
	facts providers.Facts,
	command providers.Command,
) (_ providers.Plan, err error) {
	f, ok := facts.(*Facts)
	if !ok {
		return nil, fmt.Errorf("BUG: docker: facts of another provider: %T", facts)
	}
	r := &plan{
		provider:  p,
		policy:    policy,
		facts:     f,
		label:     command.Label,
		ask:       command.Ask,
		uid:       found.UID,
		gid:       found.GID,
		names:     map[string]bool{},
		endpoints: map[string]bool{},
		mayBeGone: map[string]bool{},
	}
	if f.AsRoot {
		// Another user could not write there: no engine maps the owners of files.
		if r.uid, r.gid, err = owner(policy.Workspace); err != nil {
			return nil, err
		}
	}
	places := found.Places
	if machine, is := found.Machine.(*survey.Survey); is {
		if r.foldingDir = machine.Folding.Dir; machine.Layout != nil {
			if machine.Layout.Crowded {
				return nil, &EngineError{Text: "workspace " + policy.Workspace + ": too many paths are hidden or protected"}
			}
			if places, err = machine.Mountable(policy); err != nil {
				return nil, err
			}
		}
	}
	for _, place := range places {
		if place.Node == survey.Special {
			r.endpoints[place.Path] = true
		}
	}
	r.warnings = append(r.warnings, found.Notes...)
	if policy.Attempts { // nothing is less protected for that
		r.warnings = append(
			r.warnings,
			"denied file accesses are not reported: a container has no seccomp supervisor",
		)
	}
	name := command.Label
	if name == "" {
		name = "look"
	}
	r.dir = filepath.Join(p.host.StateDir, "docker", name)
	if err := r.refuse(); err != nil {
		return nil, err
	}
	mounts, err := namespaces.Mounts(places)
	if err != nil {
		return nil, err
	}
	if err := r.container(); err != nil {
		return nil, err
	}
	if err := r.mounts(mounts); err != nil {
		return nil, err
	}
	if err := r.command(found, command); err != nil {
		return nil, err
	}
	if err := r.filter(); err != nil {
		return nil, err
	}
	r.limits()
	if err := checkPaths(&r.host, f); err != nil {
		return nil, err
	}
	r.answers = r.answer()
	return r, nil
}

// owner returns whose a directory is.
func owner(path string) (uid, gid int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(st.Uid), int(st.Gid), nil
}

// refuse names what cannot be had of a container, before anything is made of it.
func (r *plan) refuse() error {
	p, o := r.policy, r.provider.options
	for _, c := range []struct {
		when bool
		err  *EngineError
	}{
		{!slices.Contains(r.facts.Runtimes, o.Runtime), &EngineError{
			Text: "the engine has no runtime " + o.Runtime, Advice: "it has " + strings.Join(r.facts.Runtimes, ", ") + "; the engine's daemon.json names others"}},
		{r.facts.has("rootless") || r.facts.has("userns"), &EngineError{
			Text: "the engine maps users (rootless, or userns-remap), which is not built yet", Advice: "DOCKER_HOST names another engine"}},
		{r.uid == 0, &EngineError{
			Text:   "the workspace " + p.Workspace + " belongs to root, which no command in a container is, and no engine maps the owners of files",
			Advice: "--provider native maps them; or chown -R USER " + p.Workspace}},
		{r.facts.VM && o.Image == "", &EngineError{
			Text:   "the engine is in a virtual machine, which does not have the programs of this machine",
			Advice: "--docker-image NAME takes an image's; docker pull NAME fetches it"}},
		{r.facts.VM && (r.runsc() || r.facts.Podman), &EngineError{
			Text: "gVisor and Podman are not built for an engine in a virtual machine", Advice: "--runtime runc, with Docker's engine"}},
		{r.ask && !r.ruled(), &EngineError{Text: "--ask: in a network of the engine nobody is asked", Advice: "--docker-network none"}},
		{r.provider.host.Budget != nil && !r.ruled(), &EngineError{
			Text: "--budget: in a network of the engine nobody counts what requests cost", Advice: "--docker-network none"}},
		{len(p.Without) > 0, &EngineError{Text: "--without: layers can be switched off with --provider native only"}},
		{p.Nested, &EngineError{Text: "nested: user namespaces inside a container are not built yet", Advice: "--provider native has them"}},
		{p.ProtectStrict, &EngineError{Text: "protect.strict: a container has no seccomp supervisor", Advice: "without it, new protected names are quarantined"}},
	} {
		if c.when {
			return c.err
		}
	}
	const native = "--provider native has them"
	sockets := "gVisor prevents connections to sockets of the host"
	if r.facts.VM {
		sockets = "the engine's virtual machine passes no connections to sockets of the host"
	}
	switch {
	case len(p.Network.Publish) > 0 && !r.ruled():
		return &profiles.Error{Origin: p.Network.Publish[0].Origin, Cause: "docker: publish: pccrun carries no connections of a network of the engine's", Hint: "--docker-network none"}
	case len(p.Network.Sockets) > 0 && (r.runsc() || r.facts.VM):
		return &profiles.Error{Origin: p.Network.Sockets[0].Origin, Cause: "docker: socket: " + sockets, Hint: native}
	}
	return nil
}

// ruled reports whether rules decide what is reached: the engine's own networks know none.
func (r *plan) ruled() bool { return r.provider.options.Network == noNetwork }

func (r *plan) runsc() bool { return r.provider.options.Runtime == Runsc }

// container is what every run has.
func (r *plan) container() error {
	no := false
	r.config = container.Config{
		Hostname: namespaces.Hostname, User: fmt.Sprintf("%d:%d", r.uid, r.gid), WorkingDir: "/",
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true,
		StdinOnce:  true, // when the launcher is gone pid 1 reads the end
		Entrypoint: []string{insideFile}, Cmd: []string{inside.Verb}, Env: []string{},
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels:      map[string]string{providers.LabelKey: r.label},
		Image:       r.provider.options.Image,
	}
	if r.config.Image == "" {
		var err error
		if r.layer, r.config.Image, err = rootfs(r.facts); err != nil {
			return err
		}
	}
	readOnly, masked := namespaces.KernelFiles()
	r.host = container.HostConfig{
		AutoRemove: true, Runtime: r.provider.options.Runtime, NetworkMode: container.NetworkMode(r.provider.options.Network),
		LogConfig: container.LogConfig{Type: "none"}, ReadonlyRootfs: true, CapDrop: []string{"ALL"},
		SecurityOpt: []string{
			"no-new-privileges",
		}, IpcMode: container.IPCModePrivate, CgroupnsMode: container.CgroupnsModePrivate,
		OomScoreAdj:   oomScore,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Tmpfs:         map[string]string{}, MaskedPaths: masked, ReadonlyPaths: readOnly,
	}
	r.host.Init = &no
	if r.ruled() {
		// Of a network namespace of its own: pid 1 is a name server, and listens where names are.
		r.host.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	}
	return nil
}

// bind adds a bind of something of this machine's.
func (r *plan) bind(source, target string, readOnly, tree bool, dev, ino uint64) {
	if r.names[target] {
		return
	}
	r.names[target] = true
	r.host.Mounts = append(r.host.Mounts, mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: !tree},
	})
	m := inside.Mount{Path: target, Dev: dev, Ino: ino, ReadOnly: readOnly, Bound: true}
	if r.facts.VM {
		m.Dev = 0 // of that kernel's own numbering
	}
	if r.runsc() {
		if ino != 0 {
			r.renumbered = append(r.renumbered, renumbered{source, dev, ino, len(r.inside.Mounts)})
		}
		m.Dev, m.Ino = 0, 0 // it numbers files anew
		// Its kernel refuses writes to all of a read-only tree, and its helper may not
		// take a tree without what is mounted there (mount(2), EINVAL).
		r.host.Mounts[len(r.host.Mounts)-1].BindOptions.NonRecursive = false
	}
	r.inside.Mounts = append(r.inside.Mounts, m)
	if !readOnly {
		r.inside.Writable = append(r.inside.Writable, target)
	}
}

// own adds a file or directory that the launcher makes.
func (r *plan) own(f file, target string) {
	if r.names[target] {
		return
	}
	r.files = append(r.files, f)
	r.bind(filepath.Join(r.dir, f.Name), target, true, false, 0, 0)
}

// below reports whether path is dir or lies in it.
func below(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// mounts turns the plan of mounts, which is the same on this machine, into the
// engine's. The engine mounts what has fewer names in its path first.
func (r *plan) mounts(list []namespaces.Mount) error {
	image := r.provider.options.Image != ""
	if image {
		list = slices.DeleteFunc(slices.Clone(list), r.isOfSystem)
	}
	r.own(file{Name: canaryName, Text: r.label, Mode: 0o644}, canaryFile)
	if r.facts.VM { // which need not share the directory of programs
		own, err := launcher(r.provider.host)
		if err != nil {
			return err
		}
		r.own(file{Name: "pccrun", Copy: own, Mode: 0o555}, insideFile)
	} else {
		r.bind(r.provider.host.Launcher, insideFile, true, false, 0, 0)
	}
	r.files = append(r.files, file{Name: "mask", Mode: 0})
	around := map[string]int{}
	for i := range list {
		m := &list[i]
		around[m.Target] = i
		if tree := survey.KernelTree(m.Target); tree != "" {
			if slices.Contains(r.host.MaskedPaths, m.Target) {
				continue
			}
			return &profiles.Error{
				Cause: "docker: " + m.Target + ": a container has its own " + tree + ", in which no rule holds (" + m.Why + ")",
				Hint:  "--provider native keeps it",
			}
		}
		switch m.Kind {
		case namespaces.Bind, namespaces.PrivateCopy, namespaces.Scratch:
			if m.OverLink {
				r.unlinked = m.Target
				continue
			}
			// Of a read-only tree older engines leave writable what is mounted in it: see submounts.
			readOnly := m.ReadOnly || m.Kind != namespaces.Bind
			r.bind(m.Source, m.Target, readOnly, m.Tree && !readOnly, m.Dev, m.Ino)
		case namespaces.Persist:
			if r.facts.AsRoot {
				return &EngineError{
					Text:   "the persistent home " + m.Target + " is root's, and the command is not root",
					Advice: "--home private, or start pccrun as the owner of " + r.policy.Workspace,
				}
			}
			r.bind(m.Source, m.Target, false, false, m.Dev, m.Ino)
			for _, s := range m.Stubs { // the engine would make them root's
				r.needs = append(r.needs, homes.Need{Name: s.Name, Dir: s.Node == survey.Directory, Link: s.Link})
			}
		case namespaces.Mask:
			r.hidesInWorkspace = r.hidesInWorkspace || below(m.Target, r.policy.Workspace)
			if r.runsc() && r.endpoints[m.Target] {
				continue // it mounts nothing on one, and nobody inside opens or connects to any
			}
			r.hidesFile = r.hidesFile || !m.Optional
			r.bind(filepath.Join(r.dir, "mask"), m.Target, true, false, 0, 0)
			if last := &r.inside.Mounts[len(r.inside.Mounts)-1]; last.Path == m.Target && (m.Optional || r.endpoints[m.Target]) {
				r.mayBeGone[m.Target], last.Optional = true, true
			}
		case namespaces.Text:
			r.own(file{Name: "text-" + strconv.Itoa(i), Text: m.Text, Mode: m.Mode}, m.Target)
		case namespaces.Fresh:
			r.fresh(i, m, list)
		case namespaces.Copy, namespaces.Trace: // see answer
		}
	}
	// Before the machine's own mounts: where this one is a container, its /etc/resolv.conf is one.
	for _, path := range covered {
		if !slices.Contains(r.facts.Texts, path) && !image || !ownsText(path) && image ||
			r.policy.Decide(path).Access != profiles.Read ||
			!r.ruled() && path == "/etc/resolv.conf" { // the engine's
			continue
		}
		r.own(file{Name: "own" + strings.ReplaceAll(path, "/", "-"), Text: text(path), Mode: 0o444}, path)
	}
	if !image {
		r.system(list, around)
	}
	r.inside.Writable = append(r.inside.Writable, "/dev", "/proc")
	if r.runsc() {
		for _, device := range [...]string{"/dev/fuse", "/dev/net/tun"} { // of its own kernel, and of no use
			r.bind(filepath.Join(r.dir, "mask"), device, true, false, 0, 0)
		}
		r.makeMountPoints()
	}
	return nil
}

// makeMountPoints makes the directories in which gVisor's helper makes what it mounts on: it does
// not see what is mounted inside alone, and what root makes in a directory of root's the
// launcher could not remove.
func (r *plan) makeMountPoints() {
	made := map[string]bool{}
	for _, f := range r.files {
		made[f.Name] = true
	}
	for _, target := range slices.Sorted(maps.Keys(r.names)) {
		source, at := "", "" // of the bind that it lies in
		for _, m := range r.host.Mounts {
			if m.Target != target && below(target, m.Target) && len(m.Target) > len(at) {
				source, at = m.Source, m.Target
			}
		}
		name, own := strings.CutPrefix(source, r.dir+"/")
		if !own {
			continue
		}
		for _, part := range strings.Split(strings.TrimPrefix(filepath.Dir(target), at), "/") {
			if name = filepath.Join(name, part); !made[name] {
				made[name] = true
				r.files = append(r.files, file{Name: name, Dir: true, Mode: 0o755})
			}
		}
	}
}

// ownsText reports whether the engine has a file of its own there in any image.
func ownsText(path string) bool {
	return path == "/etc/hosts" || path == "/etc/hostname" || path == "/etc/resolv.conf"
}

// text is what stands in a file that says who and where one is.
func text(path string) string {
	switch filepath.Base(path) {
	case "hosts":
		return "127.0.0.1 localhost " + namespaces.Hostname + "\n::1 localhost ip6-localhost ip6-loopback\n"
	case "hostname":
		return namespaces.Hostname + "\n"
	case "resolv.conf":
		return "nameserver 127.0.0.1\n" // where nobody answers: names are the proxy's part
	case "machine-id":
		return "70636372756e00000000000000000000\n"
	}
	return "\n"
}

// isOfSystem reports whether a mount is of this machine's system, which an image of
// the user's has in its own way.
func (r *plan) isOfSystem(m namespaces.Mount) bool {
	if below(m.Target, r.policy.Workspace) || m.Protect || m.Why == survey.WorktreeRepository ||
		m.Kind != namespaces.Scratch && m.Kind != namespaces.Mask && (m.Kind != namespaces.Bind || !m.ReadOnly) {
		return false
	}
	if slices.ContainsFunc(r.policy.Files, func(f profiles.FileRule) bool { return !ofSystem(f.Origin) && f.Origin.String() == m.Why }) {
		return false // where a path leads that the user has named
	}
	return ofSystem(r.policy.Decide(m.Target).Rule.Origin)
}

func ofSystem(o profiles.Origin) bool {
	return o.Source == "default" || strings.HasPrefix(o.Source, "built-in ")
}

// system binds what the policy shows of this machine's root, read-only. The directories on the
// way to the engine's own files are the image's, with binds of what is in them: see holdsEngine.
func (r *plan) system(list []namespaces.Mount, around map[string]int) {
	show := func(path string, dev, ino uint64) {
		if path == "/" || survey.KernelTree(path) != "" || r.facts.holdsEngine(path) {
			return
		}
		for dir := path; dir != "/"; dir = filepath.Dir(dir) {
			if i, is := around[dir]; is {
				// In what may be written it is there with the tree; in what is hidden it is hidden.
				if m := &list[i]; m.Kind != namespaces.Bind || !m.ReadOnly || m.Source != m.Target {
					return
				}
				break
			}
		}
		r.bind(path, path, true, false, dev, ino)
	}
	for _, e := range r.facts.Root {
		if e.Link == "" && e.Path != insideDir {
			show(e.Path, e.Dev, e.Ino)
		}
	}
	for _, s := range r.facts.Submounts {
		if r.runsc() {
			break // they are there with the trees that they are in
		}
		if !slices.Contains(pseudoTypes, s.Type) && !strings.HasPrefix(s.Type, "fuse.") {
			show(s.Path, 0, 0)
		}
	}
}

// pseudoTypes are file systems that hold no files of anybody's, or that root may not look into.
var pseudoTypes = strings.Fields("proc sysfs devtmpfs devpts cgroup cgroup2 mqueue debugfs tracefs securityfs pstore bpf configfs " +
	"fusectl hugetlbfs binfmt_misc autofs nsfs rpc_pipefs efivarfs overlay")

// fresh makes a directory that the host's is covered with. A hidden one is a
// directory of the launcher's, read-only; a private one is a tmpfs, and so is each
// directory in it that something is mounted in: the engine would make it root's.
func (r *plan) fresh(i int, m *namespaces.Mount, list []namespaces.Mount) {
	name := "fresh-" + strconv.Itoa(i)
	if m.ReadOnly {
		r.hidesInWorkspace = r.hidesInWorkspace || below(m.Target, r.policy.Workspace)
		r.files = append(r.files, file{Name: name, Dir: true, Mode: 0o755})
		for _, s := range m.Stubs {
			f := file{
				Name: name + "/" + s.Name,
				Mode: 0o644,
				Dir:  s.Node == survey.Directory,
				Link: s.Link,
				Text: s.Text,
			}
			if f.Dir {
				f.Mode = 0o755
			}
			r.files = append(r.files, f)
		}
		r.bind(filepath.Join(r.dir, name), m.Target, true, false, 0, 0)
		return
	}
	r.tmpfs(m.Target, m.Mode)
	for _, s := range m.Stubs {
		path := m.Target + "/" + s.Name
		mounted := slices.ContainsFunc(list, func(o namespaces.Mount) bool { return o.Target == path })
		holds := slices.ContainsFunc(
			list,
			func(o namespaces.Mount) bool { return o.Target != path && below(o.Target, path) },
		)
		switch {
		case mounted:
		case s.Node == survey.Directory && holds:
			r.tmpfs(path, stubMode(s))
		default:
			r.inside.Files = append(
				r.inside.Files,
				inside.File{Path: path, Dir: s.Node == survey.Directory, Link: s.Link, Text: s.Text},
			)
		}
	}
}

// stubMode is the mode of a directory: runc gives it to what is mounted there.
func stubMode(s namespaces.Stub) uint32 {
	if s.Closed {
		return 0o700
	}
	return 0o755
}

// tmpfs adds a private directory.
func (r *plan) tmpfs(path string, mode uint32) {
	if r.names[path] {
		return
	}
	r.names[path] = true
	owner := fmt.Sprintf("uid=%d,gid=%d", r.uid, r.gid)
	if r.facts.Podman {
		owner = "U,notmpcopyup" // the container's user's, without what it covers
	}
	options := fmt.Sprintf("rw,exec,nosuid,nodev,mode=%o,%s", mode, owner)
	if n := r.policy.Resources.Disk.Value; n > 0 {
		options += fmt.Sprintf(",size=%d", n)
	}
	r.host.Tmpfs[path] = options
	r.inside.Mounts = append(r.inside.Mounts, inside.Mount{Path: path})
	r.inside.Writable = append(r.inside.Writable, path)
}

// command plans what runs, which the engine never learns.
func (r *plan) command(found *providers.Survey, c providers.Command) error {
	env := slices.Clone(c.Env)
	for _, e := range found.Env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") }) {
			env = append(env, e)
		}
	}
	if _, private := r.host.Tmpfs["/run"]; private {
		r.own(file{Name: denialsName, Mode: 0o644}, denialsPath)
		env = append(env, "PCCRUN_DENIALS="+denialsPath)
	}
	r.environ = env
	r.inside.Argv, r.inside.Dir = inside.Texts(c.Argv), inside.Text(c.Dir)
	if r.provider.options.Image == "" {
		r.inside.Paths = inside.Texts(found.Command)
	}
	if r.inside.Canary = canaryFile; r.facts.VM {
		r.inside.Share = &inside.Share{} // with the number that the canary will have
	}
	r.inside.Deadline, r.inside.Grace = r.policy.Resources.Deadline(), grace
	for _, rule := range r.policy.Network.Publish {
		if _, port, err := profiles.PublishedPorts(rule.Text); err == nil {
			r.inside.Reach = append(r.inside.Reach, port)
		}
	}
	return nil
}

// filter takes the seccomp filters: the engine's own layer is the same as ours where
// that has a form that it takes, and ours is applied inside in any case.
func (r *plan) filter() error {
	r.inside.Filter, r.inside.Floor = seccomp.Default(), seccomp.Floor()
	engine := "unconfined"
	if own := r.policy.Syscalls; own != "" && own != seccomp.NameDefault {
		text, err := profiles.ReadFile(own)
		if err == nil {
			r.inside.Filter, err = seccomp.CompileOCI(text, runtime.GOARCH)
		}
		if err != nil {
			return &profiles.Error{Origin: r.policy.SyscallsAt, Cause: own + ": " + err.Error()}
		}
	}
	r.host.SecurityOpt = append(r.host.SecurityOpt, "seccomp="+engine)
	return nil
}

// limits plans what bounds the container.
func (r *plan) limits() {
	want, have := &r.policy.Resources, &r.host.Resources
	if n := want.Memory.Value; n > 0 && r.facts.Memory {
		have.Memory, have.MemorySwap = n, n
	}
	if n := want.CPUs.Value; n > 0 && r.facts.CPUs {
		have.NanoCPUs = n * 1_000_000
	}
	if n := want.Pids.Value; n > 0 && r.facts.Pids {
		n += ownTasks
		if r.runsc() {
			n += sentryTasks
		}
		have.PidsLimit = &n
	}
	r.host.ShmSize = want.Disk.Value
	limit := func(resource int, soft, hard uint64) {
		r.inside.Rlimits = append(r.inside.Rlimits, inside.Rlimit{Resource: resource, Soft: soft, Hard: hard})
	}
	if n := uint64(want.Files.Value); n > 0 {
		limit(rlimitNofile, n, n)
	} else {
		limit(rlimitNofile, 1024, 1<<19)
	}
	if n := uint64(want.FileSize.Value); n > 0 {
		limit(rlimitFsize, n, n)
	}
	limit(rlimitCore, 1, 1) // not 0: core(5), and package namespaces
}

// checkPaths refuses what the engine's requests would change: a path that is not UTF-8
// would name another file.
func checkPaths(host *container.HostConfig, facts *Facts) error {
	for _, m := range host.Mounts {
		if !utf8.ValidString(m.Source) || !utf8.ValidString(m.Target) {
			return &EngineError{Text: strconv.Quote(m.Target) + ": not UTF-8, which the engine requires"}
		}
		if facts.holdsEngine(m.Source) {
			return &EngineError{
				Text:   m.Source + ": the engine takes it for its own files, which are in " + facts.DataRoot + ", and would show in it what this machine mounts later",
				Advice: "--provider native, or another data-root in the engine's daemon.json",
			}
		}
	}
	for path := range host.Tmpfs {
		if !utf8.ValidString(path) {
			return &EngineError{Text: strconv.Quote(path) + ": not UTF-8, which the engine requires"}
		}
	}
	return nil
}

// HomeNeeds are the names that must stand in the persistent home.
func (r *plan) HomeNeeds() []homes.Need { return r.needs }

// Answers says of each guarantee how far the run keeps it.
func (r *plan) Answers() []profiles.Answer { return r.answers }

// Warnings are what the user should hear.
func (r *plan) Warnings() []string { return r.warnings }

// Describe returns the request to the engine, which holds no secret.
func (r *plan) Describe() any {
	return struct {
		Image  string
		Config container.Config
		Host   container.HostConfig
	}{r.config.Image, r.config, r.host}
}
