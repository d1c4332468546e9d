//go:build unix

package docker

import "github.com/pccrun/pccrun/profiles"

// landlockRefer is the first version of Landlock that is used; landlockScope closes the
// abstract sockets of others.
const (
	landlockRefer = 2
	landlockScope = 6
)

// capturedGap is what programs do not get that know of no proxy.
const capturedGap = "an address that a rule names, a port beyond the first sixteen and UDP are not captured, " +
	"no server inside can have a captured port, and names have addresses that begin with 127"

// everyRun is what keeps a guarantee in every container.
var everyRun = map[profiles.Guarantee]string{
	profiles.IPCSysV:         "ipc namespace",
	profiles.ProcNoSurvivors: "pid namespace, which ends with the launcher's connection",
	profiles.SysNoNewUserns:  "two seccomp filters",
	profiles.EnvScrub:        "an environment of its own, sent over a stream; pid 1 not dumpable",
	profiles.ResTime:         "pid 1's clock",
	profiles.TTYIsolated:     "a pseudo-terminal of its own",
	profiles.TTYOutput:       "a filter over the terminal's output",
}

// answer says of each guarantee how far this plan keeps it. Most of them differ by
// runtime: under gVisor the command meets another kernel.
func (r *plan) answer() []profiles.Answer {
	kept, weak, missing := profiles.KeptBy, profiles.WeakBy, profiles.MissingFor
	limited := func(can bool, mechanism string, wanted int64) profiles.Answer {
		switch {
		case wanted == 0:
			return kept("no limit is set")
		case !can:
			return missing("the engine has no control group for it", "")
		}
		return kept(mechanism)
	}
	gvisor, want := r.runsc(), &r.policy.Resources
	network := r.ask || len(r.policy.Network.Allow)+len(r.policy.Network.Local) > 0
	second := func(first, other string) string { // Landlock, where the kernel has it
		if gvisor || r.facts.Landlock < landlockRefer {
			return first
		}
		return first + ", " + other
	}
	return profiles.AnswerEach(everyRun, func(g profiles.Guarantee) (a profiles.Answer, ok bool) {
		switch g {
		case profiles.FSHide:
			a = kept("mount namespace")
			if r.foldingDir != "" && (r.hidesInWorkspace || r.policy.HidesPatterns()) {
				a = missing(r.folding(".ENV is read where .env is hidden"))
			} else if r.hidesFile || r.policy.HidesPatterns() {
				a = weak("mount namespace", "a hidden file that the host replaces or creates during the run can be read", "hide its directory")
			}
		case profiles.FSReadonly:
			a = kept(second("read-only mounts", "Landlock"))
		case profiles.FSSpecial:
			switch {
			case gvisor:
				a = kept("gVisor opens no FIFO, socket or device of the host")
			case r.facts.VM: // to a kernel a FIFO of a shared directory is one of its own: fs/fuse/inode.c, fuse_init_inode
				a = kept("no device but the container's own, no_new_privs, another kernel than the FIFOs of this machine have")
			case r.facts.Landlock < landlockRefer:
				a = weak("no device but the container's own, no_new_privs", "a FIFO of the host can be written", "a kernel with Landlock (Linux 5.19), or --runtime runsc")
			default:
				a = kept("no device but the container's own, no_new_privs, Landlock")
			}
		case profiles.FSProtect:
			a = weak("read-only mounts, quarantine of new names, post-run check", "a protected file that the host replaces during the run can be changed", "")
			if r.foldingDir != "" {
				a = missing(r.folding("what is written to .GIT goes to .git"))
			} else if r.unlinked != "" {
				a.Cause += "; the link " + r.unlinked + " can be replaced: no engine mounts on a link"
			}
		case profiles.FSOverlay:
			a = missing("no overlay of the host's files is made for a container", "use --provider native, or --read or --private instead of --overlay")
		case profiles.NetAllowlist, profiles.NetAddress, profiles.NetDNS, profiles.NetTransparent:
			if !r.ruled() {
				a = missing("--docker-network "+r.provider.options.Network+" is a network of the engine, where no rule of pccrun applies", "--docker-network none")
				break
			}
			if a = kept("no network"); network && g == profiles.NetTransparent {
				a = weak("addresses of the loopback for names, listeners at the ports that rules name", capturedGap, "")
			} else if network {
				a = kept("no network, a proxy over the container's stream")
			}
		case profiles.NetInject:
			a = kept("a process of its own that reads the requests to its hosts")
			if len(r.policy.Network.Inject) > 0 && !r.ruled() {
				a = missing("pccrun cannot read requests in a network of the engine", "leave --docker-network out")
			} else if len(r.policy.Network.Inject) > 0 && !network {
				a = missing("no host can be reached", "--allow HOST of the secret")
			} else if len(r.policy.Network.Inject) > 0 && !inspects {
				a = missing("no process reads requests on this system", "pccrun in a Linux virtual machine keeps it")
			}
		case profiles.IPCUnix:
			a = weak("private directories, covered sockets", "a socket in a shown directory can be reached if the host binds it later, moved it, or bound it by a relative path", "--runtime runsc prevents connections to sockets of the host")
			switch {
			case gvisor:
				a = kept("gVisor prevents connections to sockets of the host")
			case r.facts.VM:
				a.Cause, a.Hint = "a socket in a shown directory can be reached if the virtual machine passes connections on, as Docker's newest does", ""
			case r.provider.options.Network == hostNetwork && r.facts.Landlock < landlockScope:
				a = missing("with --docker-network host, abstract sockets of the host can be reached", "leave it out")
			}
		case profiles.ProcIsolated:
			a = weak("pid namespace", "the user namespace is the machine's: processes inside have the user's own uid", "--runtime runsc has another kernel")
			if gvisor {
				a = kept("gVisor's own processes")
			} else if r.facts.VM {
				a = kept("pid namespace, another kernel than this machine's")
			}
		case profiles.SysFilter:
			a = kept("two seccomp filters")
			if gvisor {
				a = kept("gVisor's kernel, two seccomp filters in it")
			}
		case profiles.PrivNone:
			a = kept("no capability, no_new_privs")
			if r.facts.Crash != "" && !gvisor {
				a = missing("a crash inside starts the host's core dump handler ("+r.facts.Crash+")", "")
			}
		case profiles.ResMemory:
			a = limited(r.facts.Memory, "control group of the engine", want.Memory.Value)
		case profiles.ResCPU:
			a = limited(r.facts.CPUs, "control group of the engine", want.CPUs.Value)
		case profiles.ResPids:
			a = limited(r.facts.Pids, "control group of the engine, with room for the threads of pid 1", want.Pids.Value)
			if gvisor && want.Pids.Value > 0 {
				a = missing("the engine counts threads of gVisor, not processes inside", "--runtime runc counts them")
			}
		case profiles.ResFiles:
			a = weak("RLIMIT_NOFILE, RLIMIT_FSIZE", "file watches and pending signals are counted with the user's own", "--runtime runsc has another kernel, which counts")
			if gvisor || r.facts.VM {
				a = kept("RLIMIT_NOFILE, RLIMIT_FSIZE")
			}
		case profiles.ResDisk:
			a = kept("no limit is set")
			if want.Disk.Value > 0 {
				a = weak("the size of each private tmpfs", "each private directory may take the whole --disk size", "")
			}
		case profiles.InfoKernel:
			a = kept("covered files, seccomp")
			if gvisor {
				a = kept("gVisor's own /proc and /sys")
			}
		case profiles.InfoHost:
			a = weak("uts namespace, own /proc and /sys", "the mount table names the host's directories, and /etc/passwd its users", "")
		case profiles.LaunchIntegrity:
			a = weak("inodes compared by pid 1, one failing step ends the launch", "pid 1 runs as the command's user, so that the command can end it", "")
			if r.facts.VM {
				a.Cause = "where the virtual machine has inode numbers of its own, a link that appears during the launch and leads to another shared file is followed; " + a.Cause
			} else if gvisor {
				a = weak("mounts and birth times of files compared by pid 1, one failing step ends the launch", "gVisor does not show the host's inode numbers, and not every file system has birth times; an empty file may be made where a link leads that appears at that moment; "+a.Cause, "--runtime runc compares inodes")
			}
		default:
			return a, false // of providers that copy files
		}
		return a, true
	})
}

// folding says why a mount does not keep a guarantee where a directory takes .ENV for .env.
func (r *plan) folding(instance string) (cause, hint string) {
	return r.foldingDir + " finds a name in any capitals, and a mount covers one spelling: " + instance,
		"move the workspace to a case-sensitive volume; macOS makes one with diskutil apfs addVolume disk1 \"Case-sensitive APFS\" NAME"
}
