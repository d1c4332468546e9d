package run

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/procfs"
)

// maxSSHLooks bounds how often a run looks who asks for a name.
const maxSSHLooks = 64

// sshRule returns the rule that lets ssh go on, where it is ssh that wants a name which no rule
// allows: who asks a name server says no port, and the usual one would not do. What the user's
// configuration calls so is another host, or is reached by way of one. "" for what ssh does not ask.
func (f *flow) sshRule(name string) string {
	if rule := f.sshRules()(name); rule != "" {
		return rule
	}
	if f.sshLooks.Add(1) > maxSSHLooks || f.machine == nil {
		return ""
	}
	first, _ := f.machine.Process()
	list, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, comm := range list {
		if text, err := os.ReadFile(comm); err != nil || string(text) != "ssh\n" {
			continue
		}
		if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(comm))); !descends(pid, first) {
			continue // of another run, or of the user
		}
		line, err := os.ReadFile(filepath.Dir(comm) + "/cmdline")
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
		if !slices.ContainsFunc(args, func(a string) bool { return strings.EqualFold(a[strings.LastIndexByte(a, '@')+1:], name) }) {
			continue
		}
		if i := slices.Index(args, "-p"); i >= 0 && i+1 < len(args) {
			return name + ":" + args[i+1]
		}
		return name + ":22"
	}
	return ""
}

// descends reports whether a process is below another, by their numbers.
func descends(pid, from int) bool {
	for range 256 {
		if pid == from {
			return true
		}
		s, ok := procfs.ReadStat(pid)
		if pid = int(s.Field(4)); !ok || pid == 0 {
			return false
		}
	}
	return false
}
