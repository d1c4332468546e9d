package escape

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// exchangeProbes attack the moment at which a directory under a protected name is exchanged for an empty one, and what
// the command holds of it from before.
func exchangeProbes() []Probe {
	probe := func(id, name, explain string, payload func(*Inside) Outcome) Probe {
		return Probe{
			ID: id, Name: name, Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "at the end the host has nothing of the payload's under such a name", Key: "protect.deny", Explain: explain,
			Payload: payload, Observe: noneOf(contested),
			Drive: func(d *Drive) Outcome {
				d.contested()
				return d.Run()
			},
		}
	}
	early := "Keeps descriptors of a directory, of one in it and of a file, names it .vscode, and once it is exchanged goes up, links, renames and writes through them."
	list := []Probe{
		probe("PER-041", "make protected directories over and over", "Threads and processes make, fill, exchange, rename and remove four protected directories, and change their modes and kinds.", hammer),
		probe("PER-042", "what was opened before a directory was exchanged", early, descriptors),
		probe("PER-043", "a mount namespace from before the exchange", "As PER-042, while a child in a mount namespace of its own writes to the same names.", func(in *Inside) Outcome {
			child := in.Again("hammer", in.Path("contested"))
			child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
			if child.Start() == nil {
				defer child.Wait()
			}
			return descriptors(in)
		}),
		probe("PER-044", "two runs that make the same protected directories", "As PER-041, in two runs at once, of which either may end first.", hammer),
		probe("PER-045", "kill a launcher that exchanges directories", "As PER-041, killed at thirty random moments; then a run that ends by itself.", hammer),
	}
	list[2].Flags = []string{"--nested"}
	list[3].Drive = func(d *Drive) Outcome {
		d.contested()
		first, out := d.begin()
		defer d.sweep()
		o := d.Run()
		if run := d.wait(first, out); o.Kind == DidBlock { // what the first still held when the second looked goes with the first
			return d.judge(run)
		}
		return o
	}
	list[4].Drive = func(d *Drive) Outcome {
		d.contested()
		for range 30 {
			cmd, out := d.begin()
			time.Sleep(time.Duration(rand.IntN(80_000)) * time.Microsecond)
			cmd.Process.Kill()
			d.wait(cmd, out)
			d.sweep()
			if d.job.Control {
				break
			}
		}
		return d.Run()
	}
	return list
}

// contested are names below a directory that stands; none of them does.
var contested = []string{"contested/.vscode", "contested/.husky", "contested/.idea", "contested/.zed"}

// contested makes that directory, and lets it be older than a run: in another, names are moved away and not exchanged.
func (d *Drive) contested() {
	must(os.MkdirAll(filepath.Join(d.Workspace, "contested"), 0o755))
	time.Sleep(50 * time.Millisecond)
}

// noneOf looks for files under protected names, a moment after the end.
func noneOf(dirs []string) func(*Outside, Outcome) Outcome {
	return afterwards(func(out *Outside, o Outcome) (found Outcome) {
		found = keepBlocked(o)
		for _, dir := range dirs {
			filepath.WalkDir(filepath.Join(out.Workspace, dir), func(path string, e fs.DirEntry, err error) error {
				if err == nil && (!e.IsDir() || filepath.Base(path) == "full") {
					found = Escaped("%s stands on the host", path)
				}
				return nil
			})
		}
		return found
	})
}

// hammer makes contested names until its time is up, and once more at the very end.
func hammer(in *Inside) Outcome {
	child := in.Again("hammer", in.Path("contested"))
	if child.Start() == nil {
		defer child.Wait()
	}
	fight(in.Path("contested"))
	return Blocked("fought")
}

// fight is what hammer and its processes do, in a directory.
func fight(sub string) {
	plant := func(dir string) {
		os.MkdirAll(dir+"/full", 0o755)
		os.WriteFile(dir+"/tasks.json", []byte("# canary\n"), 0o755)
	}
	var all sync.WaitGroup
	for k := range 3 {
		all.Go(func() {
			own := fmt.Sprintf("%s/own-%d-%d", sub, os.Getpid(), k)
			for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end); {
				name := sub + "/" + filepath.Base(contested[rand.IntN(len(contested))])
				other := sub + "/" + filepath.Base(contested[rand.IntN(len(contested))])
				switch rand.IntN(7) {
				case 0:
					plant(name)
				case 1:
					plant(own)
					os.Rename(own, name)
				case 2:
					plant(own)
					unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE)
				case 3:
					unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
				case 4:
					os.RemoveAll(name)
					os.Symlink(own, name)
				case 5:
					os.RemoveAll(name)
					os.WriteFile(name, []byte("# canary\n"), 0o755)
				case 6:
					os.Chmod(name, os.FileMode(rand.IntN(8)<<6))
				}
			}
			os.RemoveAll(own)
		})
	}
	all.Wait()
	for _, name := range contested {
		name = sub + "/" + filepath.Base(name)
		os.Chmod(name, 0o755)
		if info, err := os.Lstat(name); err == nil && !info.IsDir() {
			os.Remove(name)
		}
		plant(name)
	}
}

// descriptors goes on with what it holds of a directory when that is exchanged.
func descriptors(in *Inside) Outcome {
	made, vscode := in.Path("contested/made"), ""
	must(os.MkdirAll(made+"/in", 0o755))
	held, err := unix.Open(made, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err)
	below, err := unix.Open(made+"/in", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(err)
	file, err := os.Create(made + "/tasks.json")
	must(err)
	defer file.Close()
	if !slices.ContainsFunc(contested, func(name string) bool {
		vscode = in.Path(name)
		os.RemoveAll(vscode) // who writes to the same names may have put something there
		return os.Rename(made, vscode) == nil
	}) {
		return Blocked("the child had each of the names first")
	}
	moved := "not exchanged"
	if !in.Control {
		eventually(2*time.Second, func() bool {
			var then, now unix.Statx_t
			unix.Statx(held, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &then)
			if unix.Statx(unix.AT_FDCWD, vscode, 0, unix.STATX_MNT_ID, &now) != nil {
				moved = "moved away"
			} else if then.Mnt_id != now.Mnt_id {
				moved = "exchanged"
			}
			return moved != "not exchanged"
		})
	}
	file.WriteString("# canary\n")
	for _, way := range []struct {
		from int
		path string
	}{{held, ".."}, {held, "../.."}, {held, "../0"}, {below, "../.."}, {below, "../../.."}} {
		fd, err := unix.Openat(way.from, way.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		unix.Close(fd)
		if at != in.Path("contested") && at != in.Workspace && at != vscode {
			return Escaped("%s of what it held leads to %s", way.path, at)
		}
	}
	os.Mkdir(in.Path("contested/.husky"), 0o755)
	unix.Linkat(held, "tasks.json", unix.AT_FDCWD, in.Path("contested/.husky/pre-commit"), 0)
	unix.Linkat(held, "tasks.json", unix.AT_FDCWD, in.Path("contested/.zed"), 0)
	if fd, err := unix.Openat(below, "pre-commit", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o755); err == nil {
		unix.Write(fd, []byte("# canary\n"))
		unix.Close(fd)
	}
	unix.Renameat(held, "in", unix.AT_FDCWD, in.Path("contested/.idea"))
	unix.Renameat2(held, "in", unix.AT_FDCWD, in.Path("contested/.idea"), unix.RENAME_EXCHANGE)
	unix.Fchmod(held, 0)
	unix.Rmdir(vscode)
	return Blocked("went on with what it held, once that was %s", moved)
}
