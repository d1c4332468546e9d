package escape

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A hole was found in other software, and is public. Its kind is tried here by the probes that refer to it.
type hole struct {
	id      string
	product string
	what    string
}

// holes are all that probes refer to. Of one in Linux a probe tries the call that leads to it, not the fault behind.
var holes = []hole{
	{"CVE-2003-0063", "xterm", "a window's title came back as if it had been typed"},
	{"CVE-2007-4559", "Python", "members of an archive with absolute names, or with .., were written"},
	{"CVE-2014-3153", "Linux", "futex: a user became root"},
	{"CVE-2014-9390", "git", "names like .GIT and .g\u200cit were .git to a file system"},
	{"CVE-2015-2925", "Linux", "a directory that is moved out of a bind mount leads out of it"},
	{"CVE-2015-5157", "Linux", "a fault in the handling of interrupts of 32-bit code"},
	{"CVE-2016-0728", "Linux", "keyrings: a count of references ran over"},
	{"CVE-2016-5195", "Linux", "read-only mappings could be written (Dirty COW)"},
	{"CVE-2016-9962", "runc", "a process of the container reached descriptors of the one that entered it"},
	{"CVE-2017-5226", "bubblewrap", "TIOCSTI typed into the terminal outside"},
	{"CVE-2017-6074", "Linux", "DCCP sockets: memory was freed twice"},
	{"CVE-2018-15664", "Docker", "docker cp followed a link that was exchanged while it copied"},
	{"CVE-2019-2054", "Linux", "a tracer changed a call after the filter had judged it"},
	{"CVE-2019-5489", "Linux", "mincore showed what others read"},
	{"CVE-2019-5736", "runc", "a container overwrote runc by /proc/self/exe"},
	{"CVE-2019-10063", "flatpak", "the filter compared 64 bits of TIOCSTI's number; the kernel reads 32"},
	{"CVE-2019-11251", "kubectl", "kubectl cp wrote outside by two links in the archive"},
	{"CVE-2019-19921", "runc", "volumes in each other's place turned AppArmor off"},
	{"CVE-2019-1002101", "kubectl", "kubectl cp wrote through links that the container's tar sent"},
	{"CVE-2020-8835", "Linux", "the verifier of bpf was wrong on 32-bit operations"},
	{"CVE-2020-13401", "Docker", "router advertisements of a container changed the routes of others"},
	{"CVE-2020-14386", "Linux", "packet sockets: memory was written beyond a buffer"},
	{"CVE-2020-15257", "containerd", "abstract sockets of the host could be reached"},
	{"CVE-2021-21261", "flatpak", "a portal started programs outside with the caller's variables"},
	{"CVE-2021-21300", "git", "a link and a directory whose names differ by case ran a hook at checkout"},
	{"CVE-2021-28918", "netmask", "octal addresses passed the check of an address"},
	{"CVE-2021-29923", "Go", "leading zeros in addresses were read as decimal"},
	{"CVE-2021-30465", "runc", "a mount's target was exchanged for a link"},
	{"CVE-2021-41133", "flatpak", "newer calls of mount were not in the filter"},
	{"CVE-2022-0185", "Linux", "fsconfig: memory was written beyond a buffer"},
	{"CVE-2022-0435", "Linux", "TIPC sockets: the stack was overwritten from the network"},
	{"CVE-2022-0492", "Linux", "a writable release_agent ran programs as root of the host"},
	{"CVE-2022-0847", "Linux", "read-only files were changed by pipes (Dirty Pipe)"},
	{"CVE-2022-27666", "Linux", "ESP, by netlink: memory was written beyond a buffer"},
	{"CVE-2022-27779", "curl", "a trailing dot of a name passed the check of its domain"},
	{"CVE-2022-31214", "firejail", "a setuid launcher joined a sandbox that the user had faked"},
	{"CVE-2022-45063", "xterm", "a font's name came back as if it had been typed"},
	{"CVE-2023-0461", "Linux", "TCP_ULP: memory was used after it was freed"},
	{"CVE-2023-1523", "snapd", "TIOCLINUX pasted into the terminal outside"},
	{"CVE-2023-2006", "Linux", "RxRPC sockets: a race freed memory in use"},
	{"CVE-2023-28100", "flatpak", "TIOCLINUX pasted into the terminal outside"},
	{"CVE-2023-28101", "flatpak", "control sequences hid what a prompt asks for"},
	{"CVE-2023-32233", "Linux", "nf_tables: memory was used after it was freed"},
	{"CVE-2023-46846", "Squid", "requests were smuggled by chunked bodies"},
	{"CVE-2024-1086", "Linux", "nf_tables: memory was freed twice"},
	{"CVE-2024-21626", "runc", "a descriptor of the host's directory stayed open, and was a working directory"},
	{"CVE-2024-23651", "BuildKit", "cache mounts were exchanged for links while a build step started"},
	{"CVE-2024-24790", "Go", "addresses of IPv6 that hold one of IPv4 were not seen as private"},
	{"CVE-2024-26582", "Linux", "TLS in the kernel: memory was used after it was freed"},
	{"CVE-2024-26644", "Linux", "btrfs: a snapshot of a deleted subvolume stopped the file system"},
	{"CVE-2024-32002", "git", "a clone wrote hooks by a submodule and a link"},
	{"CVE-2024-32462", "flatpak", "a command that begins with -- was read as options of bwrap"},
	{"CVE-2025-4517", "Python", "an archive's chained links led outside of the filter of tarfile"},
	{"CVE-2025-9074", "Docker Desktop", "containers reached the engine's API over the network"},
	{"CVE-2025-22871", "Go", "a bare LF ended lines of chunked bodies"},
	{"CVE-2025-31133", "runc", "masked paths were bound from a link in place of /dev/null"},
	{"CVE-2025-38236", "Linux", "MSG_OOB of unix sockets: memory was used after it was freed"},
	{"CVE-2025-48384", "git", "a carriage return in a submodule's path wrote hooks"},
	{"CVE-2025-52565", "runc", "/dev/console was bound from a link"},
	{"CVE-2025-52881", "runc", "writes to /proc were led to other files of it"},
	{"CVE-2025-53109", "MCP file server", "a link led out of the allowed directory"},
	{"CVE-2025-53110", "MCP file server", "a directory whose name begins with an allowed one's passed"},
	{"CVE-2025-53773", "Copilot", "the agent wrote the editor's settings that let it run anything"},
	{"CVE-2025-54135", "Cursor", "the agent wrote .cursor/mcp.json, which the editor executes"},
	{"CVE-2025-54136", "Cursor", "an approved MCP configuration was changed after the approval"},
	{"CVE-2025-54794", "Claude Code", "a directory whose name begins with an allowed one's passed"},
	{"CVE-2025-55284", "Claude Code", "data left by names that ping resolves"},
	{"CVE-2025-59532", "Codex", "a directory that the model named became writable"},
	{"CVE-2025-59829", "Claude Code", "a link led past a rule that denies reading"},
	{"CVE-2025-59944", "Cursor", "names of other case passed the protection of its files"},
	{"CVE-2025-61260", "Codex", "MCP servers of a project's .codex and .env were executed"},
	{"CVE-2025-66479", "srt", "an empty list of allowed names left the network open"},
	{"CVE-2026-25724", "Claude Code", "a link led past a rule that denies reading"},
	{"CVE-2026-25725", "Claude Code", "a settings file that was not there could be made, and was obeyed later"},
	{"CVE-2026-31431", "Linux", "AF_ALG and splice wrote read-only files"},
	{"CVE-2026-39861", "Claude Code", "a link that was made inside was followed outside"},
	{"CVE-2026-41567", "Docker", "docker cp ran the container's decompressor as root of the host"},
	{"CVE-2026-41579", "runc", "files of the host were removed and made through a link in place of /dev"},
	{"CVE-2026-42074", "OpenClaude", "the model could switch the sandbox off"},
	{"CVE-2026-42306", "Docker", "a mount's target was exchanged for a link during docker cp"},
	{"CVE-2026-46406", "Claude Code", "a file of a known name in /tmp could be made before it"},
}

// triedBy are the ids of the probes that refer to a hole.
func triedBy(id string) (probes []string) {
	for _, p := range Probes() {
		if slices.Contains(p.References, id) {
			probes = append(probes, p.ID)
		}
	}
	return probes
}

// printPage writes the probes of each guarantee, and the holes whose kinds they try, as a page of Markdown.
func printPage(out io.Writer) int {
	w := bufio.NewWriter(out)
	w.WriteString("# From threat to test\n\n`pccrun escape --list --markdown` made this page. [The suite](../../docs/escape.md) runs each probe twice: as a control,\n" +
		"without the protection, where it must succeed, and inside, where it must be blocked as the third column says.\n")
	for i := range profiles.Guarantees {
		g := profiles.Guarantees[i].Guarantee
		begun := false
		for _, p := range Probes() {
			if p.Guarantee != g {
				continue
			}
			if !begun {
				begun = true
				fmt.Fprintf(w, "\n## %s\n\n%s%s\n\n| probe | severity | blocked | control |\n|---|---|---|---|\n", g, cell(profiles.Guarantees[i].Promise), not(profiles.Guarantees[i].Not))
			}
			fmt.Fprintf(w, "| %s %s | %s | %s | %s |\n", p.ID, cell(p.Name), p.Severity, cell(p.Expect), p.control())
		}
	}
	w.WriteString("\n## Public holes of other software\n\n| hole | in | what | tried by |\n|---|---|---|---|\n")
	for _, h := range holes {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", h.id, cell(h.product), cell(h.what), strings.Join(triedBy(h.id), ", "))
	}
	if err := w.Flush(); err != nil {
		return complain(err)
	}
	return 0
}

// not is the end of a promise: what it leaves out.
func not(promised string) string {
	if promised == "" {
		return "."
	}
	return ". Not promised: " + cell(promised) + "."
}

// control says in a word what shows that the probe would escape without protection.
func (p *Probe) control() string {
	switch {
	case p.Payload == nil && p.Drive == nil:
		return "none: cannot run here"
	case p.Control != nil:
		return "its own"
	}
	return "the same"
}
