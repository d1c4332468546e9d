package profiles

import (
	"slices"
	"strings"
)

// An Entry of [Guarantees] says in one line each what a guarantee promises
// and what it does not.
type Entry struct {
	Guarantee Guarantee
	Promise   string
	Not       string
}

// Guarantees documents the closed list, in the order in which tables show it.
var Guarantees = [...]Entry{
	{FSHide, "hidden files, and files below private directories, cannot be read", "names in a shown directory may be visible"},
	{FSReadonly, "files that are shown for reading cannot be changed", "times of access"},
	{FSSpecial, "devices, FIFOs and set-id bits in shown directories give no privileges, and none can be made", "sockets: see ipc.unix"},
	{FSProtect, "files that a host tool would execute later cannot be changed or shadowed", "without protect.strict a new protected name exists until it is quarantined"},
	{FSOverlay, "changes in an overlay do not reach the host's files until they are applied", "sockets and FIFOs are not kept"},
	{NetAllowlist, "only hosts and ports that the policy names can be reached", "what an allowed host does with the data that it gets"},
	{NetAddress, "an allowed name never leads to loopback, link-local, metadata or private addresses that are not named", "an address that the host's own routes redirect"},
	{NetDNS, "only allowed names are resolved", "how often an allowed name is resolved"},
	{NetTransparent, "programs that ignore proxy variables reach the allowed hosts too", "UDP other than DNS"},
	{NetInject, "an injected secret is never inside, and goes to its hosts only", "a host that sends the secret back"},
	{IPCUnix, "unix sockets of the host cannot be reached, unless named", "sockets made in a writable directory during the run"},
	{IPCSysV, "shared memory, semaphores and message queues of the host cannot be reached", ""},
	{ProcIsolated, "processes of the host cannot be seen, signalled or traced", ""},
	{ProcNoSurvivors, "no process outlives the run, however it ends", ""},
	{SysFilter, "system calls that the payload does not need are refused", "bugs in the calls that it needs"},
	{SysNoNewUserns, "no user namespace can be made inside", ""},
	{PrivNone, "the payload has no privilege and cannot gain one", ""},
	{EnvScrub, "variables that the policy does not pass cannot be found inside", ""},
	{ResMemory, "memory, swap and private files together stay below the limit", "page cache of the host's files"},
	{ResCPU, "processor time stays below the limit", "short bursts"},
	{ResPids, "processes and threads stay below the limit", ""},
	{ResFiles, "open files and the size of a file stay below the limits, for each process", ""},
	{ResDisk, "private and overlay file systems together stay below the limit", "the workspace itself"},
	{ResTime, "the run ends within its time limit, with all its processes", ""},
	{TTYIsolated, "the host's terminal cannot be written to, typed on or reconfigured", "what is printed on it"},
	{TTYOutput, "output cannot set the clipboard or make the terminal answer as if typed", "colours, titles, and misleading text"},
	{InfoKernel, "the kernel's logs, addresses and settings cannot be read", "its version"},
	{InfoHost, "host name, machine id, mounts and users of the host are not shown", "number of processors, amount of memory"},
	{LaunchIntegrity, "the files that run are those that the policy was checked against, and the sandbox is set up completely or not at all", ""},
	{SyncUp, "hidden files are not uploaded with the workspace", "a secret in a file that is shown"},
	{SyncDown, "what is copied back stays in the workspace and does not change protected files", ""},
}

// GuaranteeNames returns the names of the guarantees.
func GuaranteeNames() []string {
	names := make([]string, len(Guarantees))
	for i := range Guarantees {
		names[i] = string(Guarantees[i].Guarantee)
	}
	return names
}

// Layers lists the layers that --without knows.
var Layers = [...]Layer{
	LayerSeccomp, LayerFloor, LayerLandlock, LayerUsernsLimit, LayerPidns, LayerNetns, LayerIpcns, LayerUtsns, LayerCgroupns,
	LayerReadonly, LayerHide, LayerProtect, LayerProcMasks, LayerDumpable, LayerNoNewPrivs, LayerCaps, LayerKeyring,
	LayerEnv, LayerFds, LayerRlimits, LayerSockets, LayerTTY,
}

// LayerNames returns the names of the layers.
func LayerNames() []string { return Words(Layers[:]) }

// requirements derives what a policy asks of a provider, in the order of
// [Guarantees]: what it restricts is required, a limit that only the built-in
// default set is wanted, and strict asks for strong mechanisms.
func requirements(p *Policy) []Requirement {
	always := Origin{Source: "default", Key: "closed"}
	list := make([]Requirement, 0, len(Guarantees))
	for i := range Guarantees {
		g := Guarantees[i].Guarantee
		r := Requirement{Guarantee: g, Required: true, Origin: always}
		asked := true
		switch g {
		case FSHide:
			r.Origin, asked = p.firstWith(Hide, Private)
		case FSReadonly:
			r.Origin, asked = p.firstWith(Read)
		case FSOverlay:
			r.Origin, asked = p.firstWith(Overlay)
		case FSProtect:
			if asked = len(p.Protect) > 0; asked {
				r.Origin = p.Protect[0].Origin
			}
		case NetTransparent:
			// What the policy names is to be reached, by whatever program the command is.
			reached := slices.Concat(p.Network.Allow, p.Network.Local)
			if asked = len(reached) > 0; asked {
				r.Origin = reached[0].Origin
			}
		case NetInject:
			i := slices.IndexFunc(p.Use, func(u UseRule) bool { return u.Name == GitCredentials })
			asked = len(p.Network.Inject) > 0 || i >= 0
			if len(p.Network.Inject) > 0 {
				r.Origin = p.Network.Inject[0].Origin
			} else if asked {
				r.Origin = p.Use[i].Origin
			}
		case ResMemory, ResCPU, ResPids, ResFiles, ResDisk, ResTime:
			r, asked = p.ofLimits(r)
		case InfoHost:
			if p.Strict { // nothing that mounts keeps it strongly: it is named
				r.Required, r.Strong, r.Origin = false, true, p.toggledAt.strict
			}
		case SysNoNewUserns, InfoKernel, FSSpecial:
			if p.Nested {
				r.Required, r.Origin = false, p.toggledAt.nested
			}
		}
		if !asked {
			continue
		}
		if p.Strict && r.Required {
			r.Strong = true
			if r.Origin == always {
				r.Origin = p.toggledAt.strict
			}
		}
		list = append(list, r)
	}
	return list
}

// firstWith returns the origin of the first rule with one of the words.
func (p *Policy) firstWith(words ...Access) (Origin, bool) {
	for _, rules := range [...][]FileRule{p.Files, p.Tighten} {
		for i := range rules {
			if slices.Contains(words, rules[i].Access) {
				return rules[i].Origin, true
			}
		}
	}
	return Origin{}, false
}

// ofLimits makes a requirement of the limits that have its guarantee, if there are any: of one
// that is required, if there is one.
func (p *Policy) ofLimits(r Requirement) (of Requirement, asked bool) {
	r.Required = false
	for k := keyMemory; k <= keyTimeout; k++ {
		l := p.limit(k)
		if keys[k].guarantee != r.Guarantee || l.Value == 0 || r.Required {
			continue
		}
		asked, r.Origin, r.Required = true, l.Origin, l.Origin.Source != "built-in default"
	}
	return r, asked
}

// builtin reports whether a rule stands in a profile that came with pccrun.
func (o Origin) builtin() bool { return strings.HasPrefix(o.Source, "built-in ") }

// BuiltIn reports whether a rule is pccrun's, and nobody has said it.
func (o Origin) BuiltIn() bool { return o.Source == "default" || o.builtin() }
