package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Some set-ups put a container around the user's part, by the Podman that Debian
// has. What a refusal advises there are options of that.

// around returns the command that puts what the set-up says around a program.
func around(s *setup, options []string) ([]string, error) {
	const tree = "/run/vm-container"
	if err := containerTree(tree); err != nil {
		return nil, err
	}
	args := []string{
		"podman", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "run", "--rm", "--network", "none", "--workdir", home,
		"--env", "HOME=" + home, "--env", "USER=t", "--env", "SHELL=/bin/bash", "--env", "PATH=" + path,
		"--volume", payload + ":" + payload + ":ro", "--volume", results + ":" + results,
	}
	// Root's sandbox takes a file system that can map owners, for trials too.
	if err := errors.Join(os.MkdirAll(home+"/tmp", 0o777), os.Chmod(home+"/tmp", 0o777|os.ModeSticky), os.MkdirAll(home+"/trials", 0o755)); err != nil {
		return nil, err
	}
	args = append(args, "--volume", home+":"+home, "--volume", home+"/trials:/var/cache/pccrun", "--env", "TMPDIR="+home+"/tmp")
	return append(slices.Concat(args, s.options, options), "--rootfs", tree), nil
}

// containerTree lays the machine's own root file system, without what is
// mounted on it, below what a container writes.
func containerTree(at string) error {
	if _, err := os.Stat(at + "/usr"); err == nil {
		return nil
	}
	const upper = "/run/vm-upper"
	if err := mount("tmpfs", upper, 0, "mode=755"); err != nil {
		return err
	}
	return errors.Join(os.Mkdir(upper+"/up", 0o755), os.Mkdir(upper+"/work", 0o700), mount("overlay", at, 0, "lowerdir=/,upperdir="+upper+"/up,workdir="+upper+"/work"))
}

// around reports whether something is put around the user's part.
func (s start) around() bool { return s == container }

// dockersFilter writes the filter that Docker gives its containers, made of the
// one that Podman gives them: they are the same list, but Podman allows all what
// Docker allows holders of CAP_SYS_ADMIN alone. Namespaces are what matters here:
// clone(2) without their flags, and clone3(2), whose flags no filter sees, not
// there. Source: moby's profiles/seccomp/default.json.
func dockersFilter() error {
	text, err := os.ReadFile("/usr/share/containers/seccomp.json")
	if err != nil {
		return err
	}
	filter, err := asDocker(text)
	if err != nil {
		return err
	}
	return os.WriteFile(dockerFilter, filter, 0o644)
}

// dockerFilter is where that lies.
const dockerFilter = "/run/vm-docker.json"

// privileged are the calls that Docker's filter allows with CAP_SYS_ADMIN alone.
var privileged = []string{
	"clone", "clone3", "unshare", "setns", "mount", "umount", "umount2", "mount_setattr", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
	"sethostname", "setdomainname", "bpf", "fanotify_init", "lookup_dcookie", "perf_event_open", "quotactl", "quotactl_fd", "syslog",
}

// asDocker takes those out of a filter in the format of containers-common, and
// puts in what Docker says of clone and clone3.
func asDocker(text []byte) ([]byte, error) {
	var filter map[string]any
	if err := json.Unmarshal(text, &filter); err != nil {
		return nil, err
	}
	rules, ok := filter["syscalls"].([]any)
	if !ok {
		return nil, errors.New("the filter of Podman has no rules")
	}
	var kept []any
	for _, r := range rules {
		rule, ok := r.(map[string]any)
		names, ok2 := rule["names"].([]any)
		if !ok || !ok2 {
			return nil, errors.New("the filter of Podman has a rule without names")
		}
		rule["names"] = slices.DeleteFunc(names, func(n any) bool { name, _ := n.(string); return slices.Contains(privileged, name) })
		if len(rule["names"].([]any)) > 0 {
			kept = append(kept, rule)
		}
	}
	const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	filter["syscalls"] = append(kept,
		map[string]any{"names": []string{"clone"}, "action": "SCMP_ACT_ALLOW", "args": []any{map[string]any{"index": 0, "value": namespaceFlags, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}}},
		map[string]any{"names": []string{"clone3"}, "action": "SCMP_ACT_ERRNO", "errnoRet": int(unix.ENOSYS)})
	return json.Marshal(filter)
}

// hintedOptions returns the options that a hint names for Podman.
func hintedOptions(said string) []string {
	_, hint, _ := strings.Cut(said, "pccrun: hint: ")
	hint, _, _ = strings.Cut(hint, "\n")
	words := strings.Fields(podmanOptions.FindString(hint))
	return words[min(2, len(words)):]
}

var podmanOptions = regexp.MustCompile(`podman run(?: --[a-z-]+ [a-zA-Z0-9=]+)+`)

// startAgain does as a hint about what is around says, until there is no
// refusal: the user's part is started anew, with the options that it names.
func (r *result) startAgain(s *setup, u **userPart) error {
	last := &r.Before
	var options []string
	for range rounds {
		more := hintedOptions(last.Said)
		if len(more) == 0 {
			return fmt.Errorf("the hint names no option: %s", last.Said)
		}
		options = append(options, more...)
		r.Followed = append(r.Followed, followed{By: "the launcher's hint", Script: strings.Join(more, " ")})
		if err := (*u).leave(); err != nil {
			return err
		}
		var err error
		if *u, err = logIn(s, options); err != nil {
			return err
		}
		r.After = new(outcome)
		if err := (*u).ask("examine", r.After); err != nil {
			return err
		}
		if last = r.After; last.Code == 0 {
			return nil
		}
	}
	return errors.New("each refusal has another hint")
}

// aroundCommand is the user's part with something around it.
func aroundCommand(s *setup, options []string) (*exec.Cmd, error) {
	argv, err := around(s, options)
	if err != nil {
		return nil, err
	}
	argv = append(argv, payload+"/vm", "guest", "work")
	workspace := filepath.Join(home, "ws")
	return exec.Command(argv[0], argv[1:]...), errors.Join(os.MkdirAll(workspace, 0o755), os.Chown(workspace, userID, userID))
}
