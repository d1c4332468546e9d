//go:build unix

package macos

import "github.com/pccrun/pccrun/profiles"

const profile = "Seatbelt profile"

// everyRun is what keeps a guarantee in every run.
var everyRun = map[profiles.Guarantee]string{
	profiles.FSReadonly:     profile,
	profiles.IPCUnix:        profile,
	profiles.ProcIsolated:   profile,
	profiles.PrivNone:       profile + ", under which no set-id program is executed, and none is made",
	profiles.EnvScrub:       "an environment of its own",
	profiles.ResFiles:       "RLIMIT_NOFILE, RLIMIT_FSIZE",
	profiles.ResTime:        "the launcher's clock, and the process that follows",
	profiles.TTYIsolated:    "a pseudo-terminal of its own",
	profiles.TTYOutput:      "a filter over the terminal's output",
	profiles.InfoKernel:     profile,
	profiles.SysNoNewUserns: "macOS has no user namespaces",
}

// Answers say of each guarantee how far the run keeps it. Seatbelt is one mechanism: where strict
// asks for two, there is none.
func (r *plan) Answers() []profiles.Answer {
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	linux := "pccrun in a Linux virtual machine keeps it"
	limit := func(wanted profiles.Limit, cause string) profiles.Answer {
		if wanted.Value == 0 {
			return kept("no limit is set")
		}
		return missing(cause, linux)
	}
	want := &r.policy.Resources
	return profiles.AnswerEach(everyRun, func(g profiles.Guarantee) (a profiles.Answer, ok bool) {
		switch g {
		case profiles.FSHide:
			a = kept(profile)
			switch {
			case r.crowded:
				a = weak(profile, "too many paths are hidden or protected to protect each parent directory: one can be moved to where patterns do not apply", "hide its directory")
			case r.policy.HidesPatterns():
				a = weak(profile, "a directory with a new file that a pattern hides can be moved to where patterns do not apply", "hide its directory")
			}
		case profiles.FSSpecial:
			a = weak(profile, "FIFOs in shown directories can be read, and in writable ones written", "")
		case profiles.FSProtect:
			a = weak(profile+", post-run check", "a new name that only its directory's makes a protected one stands until the run ends, or the next pccrun after one that was killed", "")
			if r.crowded {
				a.Cause = "too many paths are hidden or protected to protect each parent directory"
			}
		case profiles.FSOverlay:
			a = missing("macOS has no copy-on-write for a sandbox", "--read or --write instead of --overlay")
		case profiles.NetAllowlist:
			a = kept("no network")
			if r.network() {
				a = weak(profile+", proxy with a token", "com.apple.trustd.agent, which checks certificates, may fetch what a certificate names", "--profile offline has no network at all")
			}
		case profiles.NetAddress, profiles.NetDNS:
			a = kept("no network")
			if r.network() {
				a = kept(profile + ", proxy with a token")
			}
		case profiles.NetTransparent:
			a = kept("no network")
			if r.network() {
				a = weak("proxy variables", "connections cannot be captured: a program that ignores proxy variables reaches no host", linux)
			}
		case profiles.NetInject:
			a = kept("nothing is injected")
			if len(r.policy.Network.Inject) > 0 {
				a = missing("no process reads requests on macOS", linux)
			}
		case profiles.IPCSysV:
			a = weak(profile, "POSIX semaphores have one space for the whole machine: one whose name is known can be opened", "")
		case profiles.ProcNoSurvivors:
			a = weak("a process of its own that follows descendants, groups and a variable", "a process that quickly leaves its group, parents and environment survives, under the profile and without network", linux)
		case profiles.SysFilter:
			a = weak(profile, "macOS has no system call filter; the profile lists the services, settings, devices and Mach ports", linux)
		case profiles.ResMemory:
			a = limit(want.Memory, "macOS has no memory limit for a tree of processes")
		case profiles.ResCPU:
			a = limit(want.CPUs, "macOS has no processor limit for a tree of processes")
		case profiles.ResPids:
			a = limit(want.Pids, "macOS counts the processes of a user, and not of a tree")
		case profiles.ResDisk:
			a = limit(want.Disk, "macOS has no limit for what a directory holds")
		case profiles.InfoHost:
			a = weak(profile, "the host's name and addresses can be read: Node and Python end without them", "")
		case profiles.LaunchIntegrity:
			a = weak("a trial inside, before the command starts", "paths are checked by the survey: a link that appears afterwards is followed", "")
		default:
			return a, false // of providers that copy
		}
		return a, true
	})
}
