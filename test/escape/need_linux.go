package escape

// A Need is a precondition by name. What meets it stands in needs; a need that
// is not listed there is met by nothing on this platform.
type Need string

// The needs. Those of a payload (python3, git, …) are found out inside.
const (
	NeedRoot      Need = "root"
	NeedResource  Need = "root with CAP_SYS_RESOURCE"
	NeedUser      Need = "an unprivileged user"
	NeedCage      Need = "a cage with a network of its own"
	NeedNative    Need = "pccrun as the launcher"
	NeedProxy     Need = "a launcher with an allow list"
	NeedTIOCSTI   Need = "legacy_tiocsti=1"
	NeedCgroup    Need = "a writable cgroup"
	NeedSetuid    Need = "a setuid canary (root)"
	NeedMacOS     Need = "macOS"
	NeedRemote    Need = "a remote provider"
	NeedCaseless  Need = "a case-insensitive file system"
	NeedVM        Need = "a virtual machine of the suite's own"
	NeedOldKernel Need = "a kernel without Landlock"
	NeedUnotify   Need = "a launcher with a seccomp supervisor"
	NeedK8s       Need = "a Kubernetes node"
	NeedExec      Need = "a launcher with an exec policy"
	NeedInspect   Need = "a launcher that inspects TLS"
	NeedDesktop   Need = "a desktop session"
	NeedNoEngine  Need = "a launcher that runs in a cage, not an engine outside"
	NeedOwnSetup  Need = "a launcher whose own system calls set the sandbox up"
	NeedAMD64     Need = "amd64"
)
