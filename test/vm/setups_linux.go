package main

import "slices"

// A setup is a machine that somebody has.
type setup struct {
	name, says string
	kernel     string // of kernels
	userland   string // of userlands
	start      start
	options    []string // of what is around
	tweaks     []string // of tweaks
	words      string   // for the kernel
	refused    string   // what the launcher's refusal must say; "" where it must run
	fixable    bool     // what pccrun advises makes it run, with limits that are kept
	mended     string   // the set-up that is this one after its hint, where only another machine can be that
	whole      []string // packages whose tests all run
	weak       string   // the guarantee that its kernel cannot keep: the doctor must say so
}

// start is how the machine starts, and where in it the user's programs run.
type start string

const (
	session   start = "session"   // systemd, a login session by PAM
	bare      start = "bare"      // no systemd, cgroup v2 that root owns
	bareV1    start = "bare-v1"   // no systemd, cgroup v1
	container start = "container" // as bare, the user's programs in a container of Podman's
)

// systemd reports whether that is pid 1.
func (s start) systemd() bool { return s == session }

// grouped reports whether what differs is who gives control groups, and whether
// there are any.
func (s start) grouped() bool { return s == bareV1 }

// A kernel is a package of the archive: the newest whose name matches.
type kernel struct{ name, arch, pattern string }

// kernels are unmodified ones of Debian: old stable releases by their number,
// and whatever is the newest.
var kernels = []kernel{
	{"5.10", amd64, `^linux-image-5\.10\.0-[0-9]+-cloud-amd64$`},
	{"6.1", amd64, `^linux-image-6\.1\.0-[0-9]+-cloud-amd64$`},
	{"6.12", amd64, `^linux-image-6\.12\.[0-9]+\+deb13(\.[0-9]+)?-cloud-amd64$`},
	{"newest", amd64, `^linux-image-[0-9]+\.[0-9]+\.[0-9]+\+deb13(\.[0-9]+)?-cloud-amd64$`},
	{"6.1 on arm64", arm64, `^linux-image-6\.1\.0-[0-9]+-cloud-arm64$`},
}

// Processors, as Go and Debian name them.
const (
	amd64 = "amd64"
	arm64 = "arm64"
)

// userlands are the releases of Debian that a set-up can have, and those that are
// made in seconds.
var userlands = []string{"bookworm", "trixie", busybox, busyboxARM}

// small reports whether the userland has no program but busybox.
func (s *setup) small() bool { return s.userland == busybox || s.userland == busyboxARM }

// arch is the processor of its kernel.
func (s *setup) arch() string {
	i := slices.IndexFunc(kernels, func(k kernel) bool { return k.name == s.kernel })
	return kernels[i].arch
}

// setups is the matrix. Those of `-short` come first.
var setups = []setup{
	{name: "session", says: "login session, cgroup v2 delegated by systemd", kernel: "6.1", userland: "bookworm", start: session, whole: core},
	{name: "session-new", says: "login session, the newest kernel", kernel: "newest", userland: "bookworm", start: session, whole: rest},
	{name: "no-systemd", says: "no systemd, cgroup v2 that root owns", kernel: "6.1", userland: "bookworm", start: bare, fixable: true},
	{name: "userns-off", says: "kernel.unprivileged_userns_clone=0", kernel: "6.1", userland: "bookworm", start: bare, tweaks: []string{"userns-off"}, refused: "kernel.unprivileged_userns_clone is 0", fixable: true},
	{name: "linux-5.10", says: "Linux 5.10", kernel: "5.10", userland: "bookworm", start: bare, refused: "older than Linux 5.12", mended: "no-systemd"},

	{name: "busybox", says: "no systemd, no program but busybox", kernel: "6.1", userland: busybox, start: bare, fixable: true},
	{name: "arm64", says: "the same on arm64", kernel: "6.1 on arm64", userland: busyboxARM, start: bare, fixable: true},
	{name: "cgroup-v1", says: "no systemd, cgroup v1", kernel: "6.1", userland: "bookworm", start: bareV1, fixable: true},
	{name: "apparmor-caps", says: "AppArmor allows user namespaces and takes their capabilities, as Ubuntu does", kernel: "6.12", userland: "trixie", start: bare, tweaks: []string{"apparmor-caps"}, refused: "AppArmor profile", fixable: true},
	{name: "no-landlock", says: "Landlock left out of lsm=", kernel: "6.1", userland: "bookworm", start: bare, words: "lsm=lockdown,capability,yama,apparmor", weak: "fs.special"},
	{name: "docker", says: "a container with Docker's filter", kernel: "6.1", userland: "bookworm", start: container, tweaks: []string{"docker-filter"}, options: slices.Concat(asUser, asDockers), refused: "a seccomp filter around", fixable: true},
	{name: "privileged", says: "a privileged container, as its root, workspace and trials on a volume", kernel: "6.1", userland: "bookworm", start: container, options: []string{"--privileged"}},
}

// What containers are started with.
var (
	asUser    = []string{"--user", "1000:1000"}
	asDockers = []string{"--security-opt", "seccomp=" + dockerFilter}
)

// root reports whether the user's part is root's, whom the list of allowed
// skips does not mean.
func (s *setup) root() bool { return slices.Contains(s.options, "--privileged") }

// short is how many set-ups `-short` tries.
const short = 6

func findSetup(name string) *setup {
	i := slices.IndexFunc(setups, func(s setup) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &setups[i]
}

// The packages whose tests all run in one of the login sessions.
var (
	core = []string{"namespaces", "namespaces/inside", "namespaces/network", "cgroups", "seccomp"}
	rest = []string{"workspace", "netproxy", "cmd/pccrun", "terminal", "sessions", "state"}
)

// A testedPackage is one whose test binary runs in the machines: whole where a
// set-up says so, what brief matches where the machine itself differs, and what
// least matches where one setting of it does, or what is around the user's part.
// One of which nothing but the kernel changes what comes of it runs in the login
// sessions alone, one of which each kernel has. What is timed says nothing on an
// emulated processor, or takes minutes of it. One that is alone needs no
// programs but busybox.
type testedPackage struct {
	pkg, brief, least, timed string
	kernel, alone            bool
}

// tested are the packages that differ between hosts. A brief is a minute or two
// of an emulated processor for all together, the least half a minute: the
// launch, its limits and end.
var tested = []testedPackage{
	{pkg: "namespaces", brief: "^(TestWithout|TestEnds|TestSignals|TestStepFails|TestCloneFails|TestKeeper|TestMounts|TestTerminal)$", least: "^(TestEnds|TestSignals|TestStepFails)$", alone: true},
	{pkg: "namespaces/inside", brief: ".", least: ".", timed: "^TestDeadline$", alone: true},
	{pkg: "namespaces/network", brief: "^(TestOwnLoopback|TestRange)$", timed: "^TestCapture$", kernel: true},
	{pkg: "providers/native", brief: "^(TestLayers|TestExit|TestNothingSurvives|TestMemory|TestLimits|TestProxy|TestFIFO)$", least: "^(TestExit|TestNothingSurvives)$"},
	{pkg: "cgroups", brief: "^(TestV2.*|TestRealBus|TestNProcInUserNamespace|TestSupervisorEndsWithTheSandbox|TestProcessors)$", least: "^TestProcessors$", timed: "^(TestSupervisorAtRest|TestSupervisorCountsSegments|TestSupervisor)$"},
	{pkg: "seccomp", brief: "^(TestKernel.*|TestWatch)$", kernel: true},
	{pkg: "workspace", brief: "^(TestAttributes|TestKinds|TestScanRepository|TestScanSubmodules|TestGuardSetsAside|TestUpperChanges|TestApply|TestOpenBeneath)$", timed: "^(TestGuardMakesRepositoriesInert|TestGuardFinishesOn.*|TestScanHostile|TestScanReference)$", kernel: true},
	{pkg: "netproxy", brief: "^(TestCaptured|TestRefused|TestSOCKS|TestRebinding|TestServeQuestions|TestLocal|TestClose)$", kernel: true},
	{pkg: "cmd/pccrun", brief: "^TestScripts$/^(flags|nested|root)$"},
	{pkg: "terminal", brief: "^(TestRelayCarries|TestSuspend|TestInterruptAndStatus|TestFilterPasses|TestFilterDrops)$", timed: "^TestAskFullScreen$", kernel: true},
	{pkg: "sessions", brief: "^(TestShortRunLeavesNothing|TestCrashed|TestKill|TestFollow)$"},
	{pkg: "state", brief: "^(TestFind|TestOpen|TestOpenRefuses|TestWriteFile|TestLock)$", timed: "^TestRemoveAll$", kernel: true},
}
