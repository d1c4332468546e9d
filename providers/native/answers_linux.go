package native

import (
	"errors"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// layerOf names the layer that a guarantee cannot do without.
var layerOf = [...]struct {
	layer     profiles.Layer
	guarantee profiles.Guarantee
}{
	{profiles.LayerHide, profiles.FSHide}, {profiles.LayerReadonly, profiles.FSReadonly}, {profiles.LayerProtect, profiles.FSProtect},
	{profiles.LayerSeccomp, profiles.SysFilter}, {profiles.LayerPidns, profiles.ProcIsolated}, {profiles.LayerPidns, profiles.ProcNoSurvivors},
	{profiles.LayerNetns, profiles.NetAllowlist}, {profiles.LayerNetns, profiles.NetAddress}, {profiles.LayerNetns, profiles.NetDNS}, {profiles.LayerNetns, profiles.NetTransparent},
	{profiles.LayerIpcns, profiles.IPCSysV}, {profiles.LayerSockets, profiles.IPCUnix}, {profiles.LayerCaps, profiles.PrivNone},
	{profiles.LayerNoNewPrivs, profiles.PrivNone}, {profiles.LayerEnv, profiles.EnvScrub}, {profiles.LayerProcMasks, profiles.InfoKernel},
	{profiles.LayerUtsns, profiles.InfoHost}, {profiles.LayerDumpable, profiles.ProcIsolated}, {profiles.LayerFds, profiles.LaunchIntegrity},
	{profiles.LayerKeyring, profiles.IPCSysV}, {profiles.LayerTTY, profiles.TTYIsolated}, {profiles.LayerTTY, profiles.TTYOutput}, {profiles.LayerRlimits, profiles.ResFiles},
}

// secondLandlock are the guarantees that are weak under strict without Landlock.
var secondLandlock = [...]profiles.Guarantee{profiles.FSHide, profiles.FSProtect, profiles.FSSpecial}

// everyRun is what keeps a guarantee in every run.
var everyRun = map[profiles.Guarantee]string{
	profiles.FSOverlay:       "overlayfs in the sandbox's user namespace", // the set-up is the trial: see overlayMissing
	profiles.IPCSysV:         "ipc namespace, session keyring",
	profiles.ProcIsolated:    "pid namespace",
	profiles.ProcNoSurvivors: "pid namespace, parent death signal",
	profiles.SysFilter:       "two seccomp filters",
	profiles.EnvScrub:        "an environment of its own, pid 1 not dumpable",
	profiles.ResFiles:        "RLIMIT_NOFILE, RLIMIT_FSIZE",
	profiles.ResTime:         "pid 1's clock",
	profiles.TTYIsolated:     "a pseudo-terminal of its own",
	profiles.TTYOutput:       "a filter over the terminal's output",
	profiles.LaunchIntegrity: "inodes compared, one failing step ends the launch",
}

// answers says of each guarantee how far this plan keeps it.
func (r *Planned) answers() []profiles.Answer {
	p := r.Policy
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	off := func(l profiles.Layer) bool { return slices.Contains(p.Without, l) }
	list := profiles.AnswerEach(everyRun, func(g profiles.Guarantee) (a profiles.Answer, ok bool) {
		switch g {
		case profiles.FSHide:
			by := "mount namespace"
			if len(r.Plan.Readable) > 0 {
				by += ", Landlock"
			}
			if r.Plan.Watch != nil && r.Plan.Watch.Opens {
				by += ", files opened by the launcher"
			}
			a = kept(by)
			switch alone := r.Plan.OpenedDirectly(); {
			case r.Plan.Folding.Dir != "" && (p.HidesPatterns() || !r.Plan.Folding.Covered && r.Plan.HidesFiles()):
				a = missing(folded(r.Plan.Folding, ".ENV is read where .env is hidden", g))
			case p.Strict && len(r.Plan.Readable) == 0:
				a = weak(by, "strict needs Landlock, which the kernel lacks or nested switches off", "a kernel with Landlock (Linux 5.19)")
			case p.Strict && !p.Nested && alone == "":
			case p.Strict && !p.Nested && (r.Plan.HidesFiles() || r.hidesLater()):
				a = weak(by, "in "+alone+" is writable, so only mounts hide files there: a command that waits can open or link a hidden file in the moment when the host replaces it, and read it from then on; one that the host creates during the run can be read", "hide its directory")
			case p.Nested && r.Plan.HidesFiles():
				a = weak(by, "a hidden file that the host replaces can be read in a mount namespace that the command made", "hide its directory")
			case r.Plan.HidesFiles() || r.hidesLater():
				a = weak(by, "a command that waits can open or link a hidden file in the moment when the host replaces it, and read it from then on; one that the host creates during the run can be read", "hide its directory")
			}
		case profiles.FSReadonly:
			a = kept("read-only mounts, Landlock")
			if r.Plan.Landlock == 0 {
				a = kept("read-only mounts")
			}
		case profiles.FSSpecial:
			a = kept("nodev and nosuid mounts, Landlock, seccomp")
			switch inner := r.Plan.ReadInWritable(); {
			case p.Nested:
				a = missing("without Landlock, which nested switches off, FIFOs in shown directories outside the workspace can be written", "")
			case r.Plan.Landlock == 0:
				a = weak("nodev and nosuid mounts, seccomp", "a FIFO of the host can be written", "a kernel with Landlock (Linux 5.19)")
			case inner != "" && !r.Plan.At(inner).OpensFiles:
				a = weak("nodev and nosuid mounts, Landlock, seccomp", "a FIFO that the host makes below "+inner+" during the run can be written: a directory around it is writable", "")
			}
		case profiles.FSProtect:
			mechanism := protectMechanism
			if p.ProtectStrict {
				mechanism = strictMechanism
			}
			a = kept(mechanism)
			if gap := r.protectGap(); gap != "" {
				a = weak(mechanism, gap, "")
			}
			if r.Plan.Folding.Dir != "" {
				a = missing(folded(r.Plan.Folding, "a file written as .VSCODE is found as .vscode", g))
			}
		case profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS:
			a = kept("network namespace")
			if r.Egress.Rules != nil {
				a = kept("network namespace, proxy, packet rules")
			}
		case profiles.NetTransparent:
			a = kept("fake addresses, packet rules") // what the kernel lacks is found at the start: see Run.connected
			if r.Plan.Network != nil {
				if err := r.Plan.Network.Check(); err != nil {
					a = missing(err.Error(), byProxyAlone)
				}
			}
		case profiles.NetInject:
			a = kept("a process of its own that reads the requests to its hosts")
			if ok, cause, hint := r.Egress.Injects(); !ok {
				a = missing(cause, hint)
			}
		case profiles.IPCUnix:
			if a = kept("private directories, covered sockets, no unix sockets but pairs (seccomp)"); r.Plan.Sockets != nil {
				break
			}
			a = weak("private directories, covered sockets", "a socket in a shown directory can be reached if the host binds it later, moved it, or bound it by a relative path", "")
		case profiles.SysNoNewUserns:
			switch {
			case p.Nested:
				a = missing("nested allows them", "")
			case off(profiles.LayerSeccomp) && off(profiles.LayerFloor) && off(profiles.LayerUsernsLimit):
				a = missing("--without seccomp, floor and userns-limit", "")
			default:
				a = kept("two seccomp filters, max_user_namespaces")
			}
		case profiles.PrivNone:
			a = kept("empty capability sets, no_new_privs")
			if h := r.Plan.CoreHandler; h != "" {
				a = missing("a crash inside starts the host's core dump handler ("+h+")", coreHint(h))
			}
		case profiles.ResMemory, profiles.ResCPU, profiles.ResPids:
			a = r.limitAnswer(g)
		case profiles.ResDisk:
			a = kept("size of the private tmpfs")
			if slices.ContainsFunc(r.Plan.Mounts, func(m namespaces.Mount) bool { return m.Kind == namespaces.Persist }) {
				a = weak("size of the private tmpfs, a supervisor that counts the home and the overlays", "they can exceed the limit for moments, and files in directories without read permission are not counted", "")
			} else if len(r.Plan.Overlays()) > 0 {
				a = weak("size of the private tmpfs, a supervisor that counts the overlays", "an overlay can exceed the limit for moments, and files in directories without read permission are not counted", "")
			}
		case profiles.InfoKernel:
			a = kept("covered files, seccomp")
			if p.Nested {
				a = missing("nested needs an uncovered /proc", "")
			}
		case profiles.InfoHost:
			a = weak("uts namespace, own /proc and /sys", "the mount table names the host's file systems, and /etc/passwd its users", "")
		default:
			return a, false // of providers that copy files
		}
		return a, true
	})
	for i := range list {
		a, g := &list[i], list[i].Guarantee
		if p.Strict && a.State == profiles.Weak && off(profiles.LayerLandlock) && slices.Contains(secondLandlock[:], g) {
			a.Cause, a.Hint = "--without "+string(profiles.LayerLandlock), ""
		}
		for _, l := range layerOf {
			if l.guarantee == g && off(l.layer) {
				a.State, a.Cause, a.Hint = profiles.Missing, "--without "+string(l.layer), ""
			}
		}
	}
	return list
}

// folded says what does not hold in a directory that folds names, and what to do.
func folded(f survey.Folding, instance string, g profiles.Guarantee) (cause, hint string) {
	return f.Dir + " ignores upper and lower case in names, and rules do not: " + instance,
		"move the workspace to a case-sensitive file system (in WSL below ~, not on /mnt/c); --allow-missing " + string(g) + " runs without"
}

// coreHint says what keeps crashes from a handler.
func coreHint(handler string) string {
	if strings.HasPrefix(handler, "|") {
		return "set the hard limit of core dumps to 1 (ulimit -Hc 1, in limits.conf or the unit); --allow-missing " + string(profiles.PrivNone) + " runs without"
	}
	return "no limit stops a socket in kernel.core_pattern; --allow-missing " + string(profiles.PrivNone) + " runs without"
}

// overlayMissing turns the refusal of an overlay by the kernel into the
// guarantee that it leaves unkept. No flag goes round it: what the command does
// would go to the host's files.
func (r *Planned) overlayMissing(err error) error {
	var refused *namespaces.OverlayError
	if !errors.As(err, &refused) {
		return err
	}
	e := &providers.MissingError{Answer: profiles.Answer{Guarantee: profiles.FSOverlay, State: profiles.Missing, Cause: refused.Error(), Hint: refused.Hint()}}
	for _, q := range r.Policy.Requirements {
		if q.Guarantee == profiles.FSOverlay {
			e.Origin = q.Origin
		}
	}
	return e
}

// limitAnswer translates what package cgroups says of a limit.
func (r *Planned) limitAnswer(g profiles.Guarantee) profiles.Answer {
	for _, a := range r.Limits.Answers {
		if guaranteeOf(a.Resource) == g {
			if g == profiles.ResMemory && r.Policy.Nested && a.State == cgroups.Weak {
				a.State, a.Cause = cgroups.Missing, "with nested, file systems that the command mounts are not counted"
			}
			return profiles.Answer{State: profiles.State(a.State), Mechanism: a.Mechanism, Cause: a.Cause, Hint: a.Hint}
		}
	}
	return profiles.Answer{Mechanism: "no limit is set"}
}

func guaranteeOf(r cgroups.Resource) profiles.Guarantee {
	switch r {
	case cgroups.Memory:
		return profiles.ResMemory
	case cgroups.CPUs:
		return profiles.ResCPU
	}
	return profiles.ResPids
}
