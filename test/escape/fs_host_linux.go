package escape

import (
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// hostProbes have the host do, while a command runs, what it does on any day:
// an editor saves a file by renaming a new one over it, a disk is mounted. What
// was closed before must be closed afterwards.
func hostProbes() []Probe {
	return []Probe{
		{ID: "FS-066", Name: "a mount that the host makes during the run", Guarantee: profiles.FSReadonly, Severity: High, Setting: Caged,
			Expect: "it does not appear, or is read-only", References: refs("mount_namespaces(7): propagation"), Key: "filesystem",
			Explain: "Where mounts spread from the host into the sandbox, one that is made later comes with the flags of the host's, writable.",
			Payload: func(in *Inside) Outcome {
				in.meet()
				return Any(createIn(in.Shown+"/sub"), keepBlocked(in.Read(in.Shown+"/sub/secret")))
			},
			Drive: func(d *Drive) Outcome {
				// as most hosts have it: what is mounted spreads to every copy of the tree that does not refuse it
				must(unix.Mount("", "/srv", "", unix.MS_SHARED, ""), "share the mounts")
				return d.meanwhile(func() {
					must(unix.Mount("late", d.Shown+"/sub", "tmpfs", 0, "mode=0777"))
					d.later(func() { unix.Unmount(d.Shown+"/sub", unix.MNT_DETACH) })
				})
			},
			Observe: stands("{shown}/sub/planted")},
		{ID: "FS-067", Name: "a hidden file that the host replaces during the run", Guarantee: profiles.FSHide, Severity: High, Needs: []Need{NeedNative},
			Gap:    "a hidden file that the host replaces",
			Expect: "covered again before the payload has looked", References: refs("rename(2): mount points"), Key: "filesystem",
			Explain: "A rename onto a covered file ends the mount that covers it, in every namespace. The payload looks a third of a second later.",
			Payload: func(in *Inside) Outcome {
				in.meet()
				return in.Read(in.Path(".env"))
			},
			Drive: func(d *Drive) Outcome { return d.replaced(".env", "TOKEN="+d.secret+"\n") }},
		{ID: "PER-036", Name: "a protected file that the host replaces during the run", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Gap:    "a protected file that the host replaces",
			Expect: "pinned again before the payload has looked", References: refs("git-config(1)"), Key: "protect.deny",
			Explain: "git config writes a new file and renames it over the old one, and so ends the mount that pins it.",
			Payload: func(in *Inside) Outcome {
				in.meet()
				return appendTo(in.Path(".git/config"))
			},
			Drive: func(d *Drive) Outcome {
				return d.replaced(".git/config", "[core]\n\tbare = false\n[user]\n\tname = host\n")
			},
			Observe: changes("{workspace}/.git/config")},
	}
}

// settled is how long after the host has done its part the payload looks: what
// covers files anew does so within milliseconds, on a machine that is not busy.
const settled = 300 * time.Millisecond

// meet tells the host that the payload runs, and waits until the host has done
// its part.
func (in *Inside) meet() {
	must(os.WriteFile(in.Path("payload-runs"), nil, 0o644))
	if !eventually(patience(4*time.Second), func() bool { return exists(in.Path("host-has-done")) }) {
		panic(Broken("the host has not done its part"))
	}
	time.Sleep(patience(settled))
}

// meanwhile starts the sandbox and does something while the payload waits.
func (d *Drive) meanwhile(do func()) Outcome {
	return d.whileItRuns(func(cmd *exec.Cmd, ended <-chan *Run) Outcome {
		do()
		must(os.WriteFile(d.Workspace+"/host-has-done", nil, 0o644))
		return d.judge(<-ended)
	})
}

// whileItRuns starts the sandbox, waits until the payload says that it runs, and
// has do go on from there, which may wait for the end. Nothing runs afterwards.
func (d *Drive) whileItRuns(do func(cmd *exec.Cmd, ended <-chan *Run) Outcome) Outcome {
	cmd, out := d.begin()
	defer d.sweep()
	ended, gone := make(chan *Run, 1), make(chan struct{})
	go func() {
		ended <- d.wait(cmd, out)
		close(gone)
	}()
	defer func() {
		cmd.Process.Kill()
		<-gone
	}()
	if !eventually(patience(6*time.Second), func() bool { return exists(d.Workspace + "/payload-runs") }) {
		cmd.Process.Kill()
		return d.judge(<-ended)
	}
	return do(cmd, ended)
}

// replaced writes a file of the workspace meanwhile, as editors and git do: by a new one
// that is renamed over it.
func (d *Drive) replaced(name, content string) Outcome {
	return d.meanwhile(func() {
		path := filepath.Join(d.Workspace, name)
		d.write(path+".new", content)
		delete(d.files, path+".new")
		d.files[path] = content
		must(os.Rename(path+".new", path))
	})
}
