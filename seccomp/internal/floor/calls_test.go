package floor

// A call is a system call with its number in each ABI, -1 where it has none.
type call struct {
	name    string
	numbers [3]int32 // x86_64, i386, aarch64: the columns of [machines]
}

// never are the calls that nothing inside may make, whatever its arguments: a
// way out, a wide kernel surface, or the whole machine's state.
var never = []call{
	{"acct", [3]int32{163, 51, 89}},
	{"bpf", [3]int32{321, 357, 280}},
	{"create_module", [3]int32{174, 127, -1}},
	{"delete_module", [3]int32{176, 129, 106}},
	{"fanotify_init", [3]int32{300, 338, 262}},
	{"fanotify_mark", [3]int32{301, 339, 263}},
	{"finit_module", [3]int32{313, 350, 273}},
	{"get_kernel_syms", [3]int32{177, 130, -1}},
	{"init_module", [3]int32{175, 128, 105}},
	{"io_uring_enter", [3]int32{426, 426, 426}},
	{"io_uring_register", [3]int32{427, 427, 427}},
	{"io_uring_setup", [3]int32{425, 425, 425}},
	{"ioperm", [3]int32{173, 101, -1}},
	{"iopl", [3]int32{172, 110, -1}},
	{"kexec_file_load", [3]int32{320, -1, 294}},
	{"kexec_load", [3]int32{246, 283, 104}},
	{"mbind", [3]int32{237, 274, 235}},
	{"modify_ldt", [3]int32{154, 123, -1}},
	{"move_pages", [3]int32{279, 317, 239}},
	{"open_by_handle_at", [3]int32{304, 342, 265}},
	{"perf_event_open", [3]int32{298, 336, 241}},
	{"pidfd_getfd", [3]int32{438, 438, 438}},
	{"process_madvise", [3]int32{440, 440, 440}},
	{"nfsservctl", [3]int32{180, 169, 42}},
	{"query_module", [3]int32{178, 167, -1}},
	{"quotactl", [3]int32{179, 131, 60}},
	{"quotactl_fd", [3]int32{443, 443, 443}},
	{"reboot", [3]int32{169, 88, 142}},
	{"set_mempolicy", [3]int32{238, 276, 237}},
	{"settimeofday", [3]int32{164, 79, 170}},
	{"socketcall", [3]int32{-1, 102, -1}}, // its family stands behind a pointer
	{"swapoff", [3]int32{168, 115, 225}},
	{"swapon", [3]int32{167, 87, 224}},
	{"syslog", [3]int32{103, 103, 116}},
	{"userfaultfd", [3]int32{323, 374, 282}},
}

// unknown are refused as if the kernel did not have them: keyrings, which know
// no namespace, a call that has a file's mode behind a pointer, and one for memory
// that cannot be taken back and that no file of /proc counts.
var unknown = []call{
	{"add_key", [3]int32{248, 286, 217}},
	{"keyctl", [3]int32{250, 288, 219}},
	{"request_key", [3]int32{249, 287, 218}},
	{"memfd_secret", [3]int32{447, 447, 447}},
	{"openat2", [3]int32{437, 437, 437}},
}

// building are the calls with which a program makes a sandbox of its own: for
// the floor of a plan that is not nested.
var building = []call{
	{"chroot", [3]int32{161, 61, 51}},
	{"fsconfig", [3]int32{431, 431, 431}},
	{"fsmount", [3]int32{432, 432, 432}},
	{"fsopen", [3]int32{430, 430, 430}},
	{"fspick", [3]int32{433, 433, 433}},
	{"mount", [3]int32{165, 21, 40}},
	{"mount_setattr", [3]int32{442, 442, 442}},
	{"move_mount", [3]int32{429, 429, 429}},
	{"open_tree", [3]int32{428, 428, 428}},
	{"pivot_root", [3]int32{155, 217, 41}},
	{"setdomainname", [3]int32{171, 121, 162}},
	{"sethostname", [3]int32{170, 74, 161}},
	{"setns", [3]int32{308, 346, 268}},
	{"umount", [3]int32{-1, 22, -1}},
	{"umount2", [3]int32{166, 52, 39}},
}

// clone3 has its flags behind a pointer; unshare and clone have them in a
// register.
var (
	clone3  = call{"clone3", [3]int32{435, 435, 435}}
	clone   = call{"clone", [3]int32{56, 120, 220}}
	unshare = call{"unshare", [3]int32{272, 310, 97}}
)

// The calls that an argument decides, by the check that looks at it.
var checked = map[string][]call{
	"mode in argument 1":  {{"chmod", [3]int32{90, 15, -1}}, {"fchmod", [3]int32{91, 94, 52}}, {"creat", [3]int32{85, 8, -1}}},
	"mode in argument 2":  {{"fchmodat", [3]int32{268, 306, 53}}},
	"flags in argument 1": {{"open", [3]int32{2, 5, -1}}},
	"flags in argument 2": {{"openat", [3]int32{257, 295, 56}}},
	"node in argument 1":  {{"mknod", [3]int32{133, 14, -1}}},
	"node in argument 2":  {{"mknodat", [3]int32{259, 297, 33}}},
	"request":             {{"ioctl", [3]int32{16, 54, 29}}},
	"lease":               {{"fcntl", [3]int32{72, 55, 25}}, {"fcntl64", [3]int32{-1, 221, -1}}},
	"core limit":          {{"setrlimit", [3]int32{160, 75, 164}}},
	"new core limit":      {{"prlimit64", [3]int32{302, 340, 261}}},
	"personality":         {{"personality", [3]int32{135, 136, 92}}},
	"family":              {{"socket", [3]int32{41, 359, 198}}},
	"pair":                {{"socketpair", [3]int32{53, 360, 199}}},
	"socket option":       {{"setsockopt", [3]int32{54, 366, 208}}},

	"message flags in argument 2": {{"sendmsg", [3]int32{46, 370, 211}}},
	"message flags in argument 3": {{"sendto", [3]int32{44, 369, 206}}, {"sendmmsg", [3]int32{307, 345, 269}}},
}
