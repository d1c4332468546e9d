//go:build unix

package macos

import (
	"slices"

	"github.com/pccrun/pccrun/profiles"
)

// noneOnMac are guarantees that stand for something that macOS has not.
var noneOnMac = map[profiles.Guarantee]string{
	profiles.SysNoNewUserns: "macOS has no user namespaces",
}

// Answers say of each guarantee how far the run keeps it. Seatbelt is one mechanism: where strict
// asks for two, there is none.
func (r *plan) Answers() (list []profiles.Answer) {
	const profile = "Seatbelt profile"
	kept := func(mechanism string) profiles.Answer { return profiles.Answer{Mechanism: mechanism} }
	weak := func(mechanism, gap, hint string) profiles.Answer {
		return profiles.Answer{State: profiles.Weak, Mechanism: mechanism, Cause: gap, Hint: hint}
	}
	missing := func(cause, hint string) profiles.Answer {
		return profiles.Answer{State: profiles.Missing, Cause: cause, Hint: hint}
	}
	docker := "--provider docker keeps it"
	limit := func(wanted profiles.Limit, cause string) profiles.Answer {
		if wanted.Value == 0 {
			return kept("no limit is set")
		}
		return missing(cause, docker)
	}
	want := &r.policy.Resources
	for i := range profiles.Guarantees {
		g := profiles.Guarantees[i].Guarantee
		var a profiles.Answer
		switch g {
		case profiles.FSHide:
			a = kept(profile)
			switch {
			case r.crowded:
				a = weak(profile, "too much is hidden or protected for each directory above it to be held: one can be moved to where patterns do not hold", "hide the directory that holds it")
			case r.hidesPatterns():
				a = weak(profile, "a directory with a file that comes during the run and that a pattern hides can be moved to where patterns do not hold", "hide its directory")
			}
		case profiles.FSReadonly:
			a = kept(profile)
		case profiles.FSSpecial:
			a = weak(profile, "a FIFO in a shown directory can be read, and one in a directory that may be written, written", "")
		case profiles.FSProtect:
			a = weak(profile, "what else git would go on with in a repository that stood, such as a rebase, is not looked through when the run ends; a directory with something new in it can be moved", "")
			if r.crowded {
				a.Cause = "too much is hidden or protected for each directory above it to be held"
			}
		case profiles.FSOverlay:
			a = missing("macOS has no copy-on-write for a sandbox", "--read or --write in place of --overlay")
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
				a = weak("proxy variables", "connections cannot be captured: what reads no proxy variable reaches nothing", docker)
			}
		case profiles.NetInject:
			a = kept("nothing is injected")
			if len(r.policy.Network.Inject) > 0 {
				a = missing("no process reads requests on macOS", docker)
			}
		case profiles.IPCUnix:
			a = kept(profile)
		case profiles.IPCSysV:
			a = weak(profile, "POSIX semaphores have one space for the whole machine: one whose name is known can be opened", "")
		case profiles.ProcIsolated:
			a = kept(profile)
		case profiles.ProcNoSurvivors:
			a = weak("a process of its own that follows descendants, groups and a variable", "a process that leaves its group, its parents and its environment within moments lives on, under the profile and without network", docker)
		case profiles.SysFilter:
			a = weak(profile, "macOS has no filter of system calls: services, settings, devices and Mach ports are those that the profile lists", docker)
		case profiles.PrivNone:
			a = kept(profile + ", under which no set-id program is executed, and none is made")
		case profiles.EnvScrub:
			a = kept("an environment of its own")
		case profiles.ResMemory:
			a = limit(want.Memory, "macOS has no limit for the memory of a tree of processes")
		case profiles.ResCPU:
			a = limit(want.CPUs, "macOS has no limit for the processors of a tree of processes")
		case profiles.ResPids:
			a = limit(want.Pids, "macOS counts the processes of a user, and not of a tree")
		case profiles.ResDisk:
			a = limit(want.Disk, "macOS has no limit for what a directory holds")
		case profiles.ResFiles:
			a = kept("RLIMIT_NOFILE, RLIMIT_FSIZE")
		case profiles.ResTime:
			a = kept("the launcher's clock, and the process that follows")
		case profiles.TTYIsolated:
			a = kept("a pseudo-terminal of its own")
		case profiles.TTYOutput:
			a = kept("a filter over the terminal's output")
		case profiles.InfoKernel:
			a = kept(profile)
		case profiles.InfoHost:
			a = weak(profile, "the host's name and addresses can be read: Node and Python end without them", "")
		case profiles.LaunchIntegrity:
			a = weak("a trial inside, before the command starts", "paths are compared as the survey saw them: a link that somebody puts in the way afterwards is followed", "")
		default:
			if none, ok := noneOnMac[g]; ok {
				a = kept(none)
				break
			}
			continue // of providers that copy
		}
		a.Guarantee = g
		list = append(list, a)
	}
	return list
}

// hidesPatterns reports whether names are hidden that may come into being.
func (r *plan) hidesPatterns() bool {
	hides := func(f profiles.FileRule) bool { return f.Glob != "" && f.Access == profiles.Hide }
	return slices.ContainsFunc(r.policy.Files, hides) || slices.ContainsFunc(r.policy.Tighten, hides)
}
