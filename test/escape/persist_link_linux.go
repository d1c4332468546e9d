package escape

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// linkProbes plant protected names by ways that no list of paths shows: through
// a link, in a directory that is closed or hidden, under another name, or by
// changing the name while somebody judges it.
func linkProbes() []Probe {
	return []Probe{
		{ID: "PER-034", Name: "a link on the way to a protected name", Guarantee: profiles.FSProtect, Severity: High,
			Expect: "quarantined: what it leads to does not matter", References: refs("CVE-2024-32002"), Key: "protect.deny",
			Explain: "The files are made where no name is protected; then a link .cargo, .vscode or .git/info leads to them.",
			Payload: func(in *Inside) Outcome {
				return each(plantedByLink, func(row struct{ link, file string }) Outcome {
					os.MkdirAll(filepath.Dir(in.Path(row.file)), 0o755)
					os.WriteFile(in.Path(row.file), []byte("# canary\n"), 0o644)
					os.MkdirAll(filepath.Dir(in.Path(row.link)), 0o755)
					os.Rename(in.Path(row.link), in.Path(row.link)+"-away")
					return Attempt(os.Symlink(filepath.Dir(in.Path(row.file)), in.Path(row.link)), "link %s", row.link)
				})
			},
			Observe: stillPlanted("fresh/.cargo/config.toml", "fresh/.vscode/tasks.json", "nested/.git/info/attributes", "nested/.git/hooks/post-checkout", ".git/hooks/post-merge")},
		{ID: "PER-035", Name: "protected names in closed and hidden directories", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "gone from the host within 100 ms of the end", Key: "protect.deny",
			Explain: "A directory that nobody may read, one whose name a rule hides, one a thousand levels deep: the post-run check must go there too.",
			Payload: func(in *Inside) Outcome {
				for _, dir := range closedPlaces {
					os.MkdirAll(in.Path(dir), 0o755)
					if err := os.WriteFile(in.Path(dir, ".envrc"), []byte("# canary\n"), 0o644); errors.Is(err, fs.ErrNotExist) {
						continue // the directory was quarantined meanwhile
					} else if err != nil {
						return Broken("%v", err)
					}
				}
				return Attempt(os.Chmod(in.Path(closedPlaces[0]), 0), "plant in %d places", len(closedPlaces))
			},
			Observe: afterwards(func(out *Outside, _ Outcome) Outcome {
				os.Chmod(filepath.Join(out.Workspace, closedPlaces[0]), 0o755)
				for _, dir := range closedPlaces {
					if exists(filepath.Join(out.Workspace, dir, ".envrc")) {
						return Escaped("%.40s/.envrc stands on the host", dir)
					}
				}
				return Blocked("planted, and quarantined")
			})},
		{ID: "FS-064", Name: "a hidden file by another of its names", Guarantee: profiles.FSHide, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--hide", "{workspace}/named"}, Expect: "content never read", Errnos: errnos("EACCES ENOENT EPERM"), References: refs("CWE-62"), Key: "filesystem",
			Explain: "An earlier run has made a hard link of a file that the user hides now, in another directory of the workspace.",
			Payload: func(in *Inside) Outcome { return Any(in.Read(in.Path("named")), in.Read(in.Path("sub/other-name"))) },
			Drive: func(d *Drive) Outcome {
				d.write(d.Workspace+"/named", d.secret+"\n")
				must(os.Link(d.Workspace+"/named", d.Workspace+"/sub/other-name"))
				return d.Run()
			}},
		{ID: "FS-065", Name: "a read-only file by another of its names", Guarantee: profiles.FSReadonly, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--read", "{workspace}/kept"}, Expect: "EROFS or EACCES", Errnos: errnos("EROFS EACCES EPERM"), References: refs("CWE-62"), Key: "filesystem",
			Explain: "An earlier run has made a hard link of a file in a directory that is read-only now.",
			Payload: func(in *Inside) Outcome { return appendTo(in.Path("sub/kept-too")) },
			Drive: func(d *Drive) Outcome {
				d.write(d.Workspace+"/kept/f", "kept\n")
				must(os.Link(d.Workspace+"/kept/f", d.Workspace+"/sub/kept-too"))
				return d.Run()
			},
			Observe: changes("{workspace}/kept/f")},
	}
}

// plantedByLink are links that stand for a directory on the way to a protected
// name, each with the file that it leads to.
var plantedByLink = []struct{ link, file string }{
	{"fresh/.cargo", "a/config.toml"}, {"fresh/.vscode", "b/tasks.json"}, {"nested/.git/info", "c/attributes"}, {"nested/.git/hooks", "d/post-checkout"}, {".git/hooks", "e/post-merge"},
}

// closedPlaces are directories into which a look may not go; the first is
// closed at the end.
var closedPlaces = []string{"shut", ".envs", ".env.d/in", deep("deep", 300), "odd\x1bname"}

func deep(name string, levels int) string {
	path := name
	for range levels {
		path = filepath.Join(path, "d")
	}
	return path
}

// raceSupervisor is the attack on launchers that judge a system call by what a
// pointer of the caller leads to, and then let the call go on.
func raceSupervisor() Probe {
	const tries = 2000
	return Probe{
		ID: "KS-033", Name: "race a supervisor that decides by pointers", Guarantee: profiles.FSProtect, Severity: Critical, Needs: []Need{NeedNative},
		Flags: []string{"--protect-strict"}, Expect: "the name never stands", References: refs("seccomp_unotify(2)", "GHSA-72w7-mf9g-733p"), Key: "protect.strict",
		Explain: "One thread makes a file, again and again, while another changes the first letter of its name: what was judged as xenvrc would be made as .envrc.",
		Payload: func(in *Inside) Outcome {
			dir := in.Path("raced")
			must(os.Mkdir(dir, 0o755))
			name := []byte(dir + "/xenvrc\x00")
			first := &name[len(dir)+1]
			var over atomic.Bool
			var group sync.WaitGroup
			group.Go(func() {
				runtime.LockOSThread()
				for n := 0; !over.Load(); n++ {
					*first = "x."[n&1] // the race is the point
				}
			})
			defer group.Wait()
			defer over.Store(true)
			made, refused, here := 0, 0, unix.AT_FDCWD
			for range tries {
				fd, err := Call(unix.SYS_OPENAT, uintptr(here), uintptr(unsafe.Pointer(&name[0])), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
				if err != nil {
					refused++
				} else {
					made++
					unix.Close(int(fd))
				}
				if _, err := os.Lstat(dir + "/.envrc"); err == nil {
					return Escaped(".envrc stood after %d files and %d refusals", made, refused)
				}
				os.Remove(dir + "/xenvrc")
			}
			if made == 0 || refused == 0 {
				return Broken("%d made, %d refused: there was no race", made, refused)
			}
			return Blocked("%d made, %d refused, .envrc never stood", made, refused)
		},
	}
}
