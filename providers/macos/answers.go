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

// inLinux is the hint where only another kernel does.
const inLinux = "pccrun in a Linux virtual machine keeps it"

// Answers say of each guarantee how far the run keeps it. Seatbelt is one mechanism: where strict
// asks for two, there is none.
func (r *plan) Answers() []profiles.Answer {
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	asked := func(of bool, otherwise string, a profiles.Answer) profiles.Answer {
		if !of {
			return kept(otherwise)
		}
		return a
	}
	network := func(a profiles.Answer) profiles.Answer { return asked(r.network(), "no network", a) }
	limit := func(of profiles.Limit, cause string) profiles.Answer {
		return asked(of.Value != 0, "no limit is set", missing(cause, inLinux))
	}
	const proxied, crowded = profile + ", proxy with a token", "too many paths are hidden or protected to protect each parent directory"
	want := &r.policy.Resources
	answers := map[profiles.Guarantee]profiles.Answer{ // but those of providers that copy
		profiles.FSHide: asked(r.policy.HidesPatterns(), profile,
			weak(profile, "a directory with a new file that a pattern hides can be moved to where patterns do not apply", "hide its directory")),
		profiles.FSSpecial:    weak(profile, "FIFOs in shown directories can be read, and in writable ones written", ""),
		profiles.FSProtect:    weak(profile+", post-run check", "a new name that only its directory's makes a protected one stands until the run ends, or the next pccrun after one that was killed", ""),
		profiles.FSOverlay:    missing("macOS has no copy-on-write for a sandbox", "--read or --write instead of --overlay"),
		profiles.NetAllowlist: network(weak(proxied, "com.apple.trustd.agent, which checks certificates, may fetch what a certificate names", "--profile offline has no network at all")),
		profiles.NetAddress:   network(kept(proxied)),
		profiles.NetDNS:       network(kept(proxied)),
		profiles.NetTransparent: network(weak("proxy variables",
			"connections cannot be captured: a program that ignores proxy variables reaches no host", inLinux)),
		profiles.NetInject: asked(len(r.policy.Network.Inject) > 0, "nothing is injected", missing("no process reads requests on macOS", inLinux)),
		profiles.IPCSysV:   weak(profile, "POSIX semaphores have one space for the whole machine: one whose name is known can be opened", ""),
		profiles.ProcNoSurvivors: weak("a process of its own that follows descendants, groups and a variable",
			"a process that quickly leaves its group, parents and environment survives, under the profile and without network", inLinux),
		profiles.SysFilter:       weak(profile, "macOS has no system call filter; the profile lists the services, settings, devices and Mach ports", inLinux),
		profiles.ResMemory:       limit(want.Memory, "macOS has no memory limit for a tree of processes"),
		profiles.ResCPU:          limit(want.CPUs, "macOS has no processor limit for a tree of processes"),
		profiles.ResPids:         limit(want.Pids, "macOS counts the processes of a user, and not of a tree"),
		profiles.ResDisk:         limit(want.Disk, "macOS has no limit for what a directory holds"),
		profiles.InfoHost:        weak(profile, "the host's name and addresses can be read: Node and Python end without them", ""),
		profiles.LaunchIntegrity: weak("a trial inside, before the command starts", "paths are checked by the survey: a link that appears afterwards is followed", ""),
	}
	if r.crowded {
		answers[profiles.FSHide] = weak(profile, crowded+": one can be moved to where patterns do not apply", "hide its directory")
		answers[profiles.FSProtect] = weak(profile+", post-run check", crowded, "")
	}
	return profiles.AnswerEach(everyRun, func(g profiles.Guarantee) (a profiles.Answer, ok bool) {
		a, ok = answers[g]
		return a, ok
	})
}
