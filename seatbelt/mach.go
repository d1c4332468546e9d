package seatbelt

// A need is something of the system that is no file, and who needs it.
type need struct {
	why     string
	filters []string
}

// services are what may be looked up whatever the network. Each is shipped by
// others for the same reason (beliefs.md); what is not here is left out:
//   - com.apple.SecurityServer, com.apple.securityd.xpc: the keychain gives any program
//     what another one has put there. An agent's login comes as a file of its home;
//   - com.apple.lsd.*, com.apple.coreservices.*, launchd's: they start programs outside;
//   - com.apple.pasteboard.1, com.apple.windowserver.*: the clipboard, the screen;
//   - com.apple.nsurlsessiond, com.apple.WebKit.*, com.apple.ocspd: they fetch from hosts, past the proxy;
//   - com.apple.logd: what stands in the system's log; it is done without;
//   - com.apple.FSEvents: it tells the names of what changes in a hidden home;
//   - com.apple.cfprefsd.*: settings of other programs; who asks reads files instead;
//   - mDNSResponder, a unix socket: names are looked up by the proxy.
var services = []need{
	{"users by number and name: git, ssh, Node, Python, Homebrew's tools",
		global("com.apple.system.opendirectoryd.libinfo")},
	{"groups of a user: id, git's test of who owns a repository", global("com.apple.system.opendirectoryd.membership")},
	{"libc asks whether the time zone or the users have changed", global("com.apple.system.notification_center")},
	{"where temporary files go: Xcode's xcrun, clang, Swift", global("com.apple.bsd.dirhelper")},
	{"settings of proxies: Python's urllib asks, and Rust's clients (codex, uv) end without an answer",
		global("com.apple.SystemConfiguration.configd")},
}

// trust is looked up where the policy lets anything out. It can be made to fetch what a
// certificate names: beliefs.md.
var trust = []need{
	{"whether a certificate is trusted: Go's TLS, git, gh, Swift", global("com.apple.trustd.agent")},
}

// settings are what may be read of the kernel's: nothing of serial numbers, of how the
// machine was started, of other processes and their arguments.
var settings = []need{
	{"processors and memory: Node, Go, Python, make -j, compilers", sysctls(
		"hw.activecpu", "hw.ncpu", "hw.logicalcpu", "hw.logicalcpu_max", "hw.physicalcpu", "hw.physicalcpu_max",
		"hw.nperflevels", "hw.packages",
		"hw.memsize", "hw.pagesize", "hw.pagesize_compat", "hw.cachelinesize", "hw.cachelinesize_compat",
		"hw.cpufrequency", "hw.cpufrequency_compat",
		"hw.tbfrequency", "hw.tbfrequency_compat", "hw.byteorder", "hw.cacheconfig", "hw.vectorunit", "vm.loadavg")},
	{"the same, by level of performance", prefixes("hw.perflevel")},
	{"caches: the JVM, OpenBLAS", prefixes("hw.l1dcachesize", "hw.l1icachesize", "hw.l2cachesize", "hw.l3cachesize")},
	{"since when it runs: Node's os.uptime raises without it", sysctls("kern.boottime")},
	{"how many connections wait: Go's servers", sysctls("kern.ipc.somaxconn")},
	{"whether pointers are signed: Bun, in which claude is written", sysctls("machdep.ptrauth_enabled")},
	{"which machine: uname, installers of Homebrew, npm and pip that choose a build", sysctls(
		"hw.machine", "hw.model", "hw.cputype", "hw.cpufamily", "sysctl.proc_cputype", "sysctl.proc_translated")},
	{"what the processor can: Go's and OpenSSL's cryptography, V8", prefixes("hw.optional.", "machdep.cpu.")},
	{"the host's name: Node's os.hostname and Python's socket.gethostname raise without it", sysctls("kern.hostname")},
	{"the machine's addresses: Node's os.networkInterfaces raises without them, and servers of Vite's kind end",
		prefixes("net.routetable.")},
	{"which system: uname, Swift, Xcode's tools", sysctls("kern.osproductversion", "kern.osrelease", "kern.ostype",
		"kern.osversion", "kern.version", "kern.osvariant_status")},
	{"bounds: Node and Go open files, xargs passes arguments, the JVM starts threads", sysctls(
		"kern.argmax", "kern.maxfiles", "kern.maxfilesperproc", "kern.maxproc", "kern.ngroups", "kern.usrstack64")},
	{"dyld and libc, at each start", sysctls("kern.secure_kernel", "kern.willshutdown",
		"security.mac.lockdown_mode_state", "kern.tcsm_available", "kern.tcsm_enable")},
}

// written are settings that are written to be read.
var written = []need{
	{"the JVM asks with a value whether a processor is fit for it; nothing is kept", sysctls("kern.grade_cputype")},
}

// devicesOfIOKit are the classes of the kernel's that may be opened.
var devicesOfIOKit = []need{
	{"notices that the machine sleeps, which runtimes ask for; codex and srt ship it",
		[]string{`(iokit-registry-entry-class "RootDomainUserClient")`}},
}

func global(names ...string) []string   { return each("global-name", names) }
func sysctls(names ...string) []string  { return each("sysctl-name", names) }
func prefixes(names ...string) []string { return each("sysctl-name-prefix", names) }

func each(filter string, names []string) (list []string) {
	for _, n := range names {
		list = append(list, "("+filter+` "`+n+`")`)
	}
	return list
}
