package survey

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/workspace"
)

// groupShared says that git can make no directory in the workspace's repository, and so no commit: it sets the set-group-ID
// bit of each (core.sharedRepository, git-config(1); adjust_shared_perm in git's path.c), unless that has it already from the
// one above, and the mode that is wanted from the umask. The filter refuses the bit, since it sees no difference to a file's.
func (f needs) groupShared(found *workspace.Found) {
	value := ""
	git, settings := f.repository(found)
	for _, s := range settings {
		if s.Name() == "core.sharedrepository" {
			value = strings.ToLower(s.Value)
			if s.Bare {
				value = "true"
			}
		}
	}
	if value == "" {
		return
	}
	var st unix.Stat_t
	inherits := unix.Stat(git+"/objects", &st) == nil && st.Mode&unix.S_ISGID != 0
	mask, err := umask()
	if good := sharedUmask(value, mask); err == nil && good >= 0 && (good != mask || !inherits) {
		hint := ""
		if inherits {
			hint = fmt.Sprintf(" (to allow: umask %03o)", good)
		}
		f.notes = append(f.notes, "git makes no directory in "+git+": core.sharedRepository has it set the set-group-ID bit, which the sandbox refuses"+hint)
	}
}

// sharedUmask returns the umask with which git finds the mode that a value of core.sharedRepository asks for on a directory
// that it makes, as near to the one that there is as may be; -1 for a value that asks for none.
func sharedUmask(value string, mask int) int {
	n, _ := strconv.ParseInt(value, 8, 32)
	mode := int(n) & 0o666
	switch value {
	case "group", "true", "yes", "on", "1":
		mode = 0o777&^mask | 0o070
	case "all", "world", "everybody", "2":
		mode = 0o777&^mask | 0o075
	}
	if mode&0o060 == 0 {
		return -1
	}
	return 0o777 &^ (mode | mode&0o444>>2)
}

// umask returns that of this process.
func umask() (int, error) {
	text, err := procfs.Read("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nUmask:\t")
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(digits, 8, 32)
	return int(n), err
}
