package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// runRunc is the ready line of runc, which takes a bundle and not a command
// line: runc's own default configuration, the host's / shown read-only by its
// directories, the workspace writable. The bundle lies beside the canary, with
// the rest of the world. The container's name is the world's tag, by which its
// control groups are found again.
func runRunc(name, workspace, home, canary string, argv []string) int {
	code, err := inBundle(name, workspace, home, canary, argv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runc:", err)
		return 125
	}
	return code
}

func inBundle(name, workspace, home, canary string, argv []string) (int, error) {
	bundle, err := os.MkdirTemp(filepath.Dir(canary), "bundle-")
	if err != nil {
		return 0, err
	}
	if err := os.Mkdir(bundle+"/rootfs", 0o755); err != nil {
		return 0, err
	}
	args := []string{"spec", "--bundle", bundle}
	if os.Geteuid() != 0 {
		args = append(args, "--rootless")
	}
	if out, err := exec.Command("runc", args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("spec: %w: %s", err, out)
	}
	data, err := os.ReadFile(bundle + "/config.json")
	if err != nil {
		return 0, err
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return 0, err
	}
	process := spec["process"].(map[string]any)
	process["args"], process["cwd"], process["terminal"] = argv, workspace, isTerminal(os.Stdin)
	type mount = map[string]any
	bind := func(path, mode string) mount {
		return mount{"destination": path, "source": path, "type": "none", "options": []string{"rbind", mode}}
	}
	mounts := spec["mounts"].([]any)
	entries, err := os.ReadDir("/")
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		path := "/" + entry.Name()
		switch entry.Name() {
		case "proc", "sys", "dev", "run", "tmp", "home", "root":
			continue
		}
		if target, err := os.Readlink(path); err == nil {
			if err := os.Symlink(target, bundle+"/rootfs"+path); err != nil {
				return 0, err
			}
		} else if entry.IsDir() {
			mounts = append(mounts, bind(path, "ro"))
		}
	}
	mounts = append(mounts,
		mount{"destination": "/tmp", "source": "tmpfs", "type": "tmpfs", "options": []string{"nosuid", "nodev"}},
		mount{"destination": canary, "source": "tmpfs", "type": "tmpfs", "options": []string{"nosuid", "nodev"}},
		mount{"destination": home, "source": "tmpfs", "type": "tmpfs", "options": []string{"nosuid", "nodev"}},
		bind(filepath.Join(filepath.Dir(canary), "shown"), "ro"), bind(workspace, "rw"))
	spec["mounts"] = mounts
	if data, err = json.Marshal(spec); err != nil {
		return 0, err
	}
	if err := os.WriteFile(bundle+"/config.json", data, 0o644); err != nil {
		return 0, err
	}
	state := []string{"--root", bundle + "/state"}
	cmd := exec.Command("runc", append(state, "run", "--bundle", bundle, name)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	exec.Command("runc", append(state, "delete", "--force", name)...).Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}
