package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/providers/inside"
)

// lending is what of root's is shown as an identity's.
type lending struct{ lent *namespaces.Plan }

func (l lending) lends() bool { return l.lent != nil }

// lend shows root's files as the identity's, where the workspace is root's: no engine maps
// owners of binds. The launcher, which is root, mounts them over the engine's in the
// container, before pid 1 compares what stands there.
func (r *running) lend() error {
	if r.lent == nil {
		return nil
	}
	if err := r.lent.Donate(); err != nil {
		return fmt.Errorf("lend root's files: %w", err)
	}
	donated := map[string]int{}
	for i := range r.lent.Mounts {
		if m := &r.lent.Mounts[i]; m.Donated >= 0 {
			defer unix.Close(m.Donated)
			donated[m.Target] = m.Donated
		}
	}
	for _, fd := range r.lent.Checked {
		unix.Close(fd)
	}
	ns, err := r.receive(1)
	if err != nil {
		return &EngineError{Text: "take the container's mount namespace", Err: err}
	}
	defer ns[0].Close()
	if r.inside.Socket == "" { // nothing else is handed over
		if err := r.shut(); err != nil {
			return err
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends in the container's namespace
		done <- r.over(ns[0], donated)
	}()
	return <-done
}

// over enters a mount namespace and mounts there what is lent, and again what the engine
// has mounted in it.
func (r *running) over(ns *os.File, donated map[string]int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if text, err := os.ReadFile(canaryFile); err != nil || string(text) != r.label {
		return elsewhere(r.provider.address, err)
	}
	var targets []string
	for _, m := range r.inside.Mounts {
		if within(m.Path, donated) {
			targets = append(targets, m.Path)
		}
	}
	slices.SortStableFunc(targets, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	trees := make([]int, len(targets))
	for i, target := range targets {
		fd, lent := donated[target]
		if !lent {
			var err error
			if fd, err = unix.OpenTree(unix.AT_FDCWD, target, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return &os.PathError{Op: "open_tree", Path: target, Err: err}
			}
			defer unix.Close(fd)
		} else if r.readOnly(target) {
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
				return &os.PathError{Op: "mount_setattr", Path: target, Err: err}
			}
		}
		trees[i] = fd
	}
	for i, target := range targets {
		at, err := unix.Openat2(unix.AT_FDCWD, target, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return &os.PathError{Op: "open", Path: target, Err: err}
		}
		err = unix.MoveMount(trees[i], "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		unix.Close(at)
		if err != nil {
			return &os.PathError{Op: "move_mount", Path: target, Err: err}
		}
	}
	return nil
}

// within reports whether a path is one of these or lies in one.
func within(path string, donated map[string]int) bool {
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if _, is := donated[dir]; is {
			return true
		}
	}
	return false
}

// readOnly reports whether a mount of the plan is.
func (r *plan) readOnly(target string) bool {
	for _, m := range r.inside.Mounts {
		if m.Path == target {
			return m.ReadOnly
		}
	}
	return false
}

// borrow plans that root's files are lent to the identity that the survey names.
func (r *plan) borrow(mounts []namespaces.Mount) {
	r.lent = &namespaces.Plan{Mounts: mounts}
	r.lent.Identity = namespaces.WhoAmI()
	for i := range mounts {
		mounts[i].Donated = -1
	}
	r.config.Cmd = append(r.config.Cmd, inside.Lent, doorFile)
}

// accounts are /etc/passwd and /etc/group with a line for the identity.
func (r *plan) accounts() {
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("pccrun:x:%d:%d:pccrun:%s:/bin/sh\n", r.uid, r.gid, r.policy.Home),
		"/etc/group":  fmt.Sprintf("pccrun:x:%d:\n", r.gid),
	} {
		r.own(file{Name: "own" + strings.ReplaceAll(path, "/", "-"), Text: line + r.facts.Accounts[path], Mode: 0o444}, path)
	}
}
