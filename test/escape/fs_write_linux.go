package escape

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// writeProbes try to change what is shown for reading, or not at all.
func writeProbes() []Probe {
	readonly := errnos("EROFS EACCES EPERM ENOENT")
	return []Probe{
		{ID: "FS-002", Name: "create a file outside the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, References: refs("CVE-2025-59532"), Key: `filesystem`,
			Explain: "Creates files next to shown and hidden ones. The host checks afterwards.",
			Payload: func(in *Inside) Outcome { return Any(createIn(in.Canary), createIn(in.Tmp), createIn(in.Shown)) },
			Observe: hostUnchanged},
		{ID: "FS-003", Name: "append to a start-up file in the home", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, absence or a private home", References: refs("srt: mandatory-deny tests"), Key: `filesystem."~"`,
			Explain: "A line in ~/.bashrc runs outside the sandbox the next time that a shell starts.",
			Payload: func(in *Inside) Outcome {
				return Any(appendTo(in.Home+"/.bashrc"), appendTo(in.Home+"/.profile"), appendTo(in.Home+"/.gitconfig"))
			},
			Observe: hostUnchanged},
		{ID: "FS-004", Name: "write through a symbolic link in the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS or EACCES at the target", References: refs("CVE-2026-39861", "CVE-2025-53109", "CVE-2025-53110"), Key: `filesystem`,
			Explain: "Plants a link to a directory outside in the writable workspace and writes through it.",
			Payload: func(in *Inside) Outcome { return Any(throughLink(in, in.Canary), throughLink(in, in.Shown)) },
			Observe: hostUnchanged},
		{ID: "FS-010", Name: "write the system's accounts, preloads and schedules", Guarantee: profiles.FSReadonly, Severity: Critical, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("CDK"), Key: `filesystem."/"`,
			Explain: "A line in any of these runs as root later.",
			Payload: func(in *Inside) Outcome {
				return each([]string{"/etc/passwd", "/etc/ld.so.preload", "/etc/cron.d/canary", "/etc/profile.d/canary.sh", "/etc/crontab", "/etc/hosts"}, appendTo)
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if data, _ := os.ReadFile("/etc/passwd"); bytes.Contains(data, []byte("canary")) {
					return Escaped("/etc/passwd has a new line")
				}
				return stands("/etc/ld.so.preload", "/etc/cron.d/canary", "/etc/profile.d/canary.sh")(out, o)
			}},
		{ID: "FS-011", Name: "plant a program in a system directory", Guarantee: profiles.FSReadonly, Severity: High, Setting: Caged,
			Expect: "EROFS", Errnos: readonly, Key: `filesystem."/"`,
			Explain: "A program in /usr/local/bin or /opt is started by others.",
			Payload: func(in *Inside) Outcome {
				return Any(createIn("/usr/local/bin"), createIn("/usr/bin"), createIn("/opt"), createIn("/srv"), createIn("/"))
			},
			Observe: stands(plantedIn("/usr/local/bin", "/usr/bin", "/opt", "/srv", "/")...)},
		{ID: "FS-012", Name: "delete a file outside the workspace", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, Key: `filesystem`,
			Explain: "Deleting is a write to the directory, not to the file: a filter on open does not see it.",
			Payload: func(in *Inside) Outcome {
				return Any(Attempt(os.Remove(in.Shown+"/f"), "unlink"), Attempt(os.RemoveAll(in.Shown+"/sub"), "remove a tree"),
					Attempt(os.Remove(in.Canary+"/f"), "unlink a hidden file"))
			},
			Observe: hostUnchanged},
		{ID: "FS-013", Name: "change the times of a file outside", Guarantee: profiles.FSReadonly, Severity: Low,
			Expect: "EROFS or EPERM", Errnos: readonly, References: refs("landlock(7)"), Key: `filesystem`,
			Explain: "Build tools trust time stamps. Landlock does not govern utimensat.",
			Payload: func(in *Inside) Outcome {
				return Attempt(os.Chtimes(in.Shown+"/f", time.Unix(1, 0), time.Unix(1, 0)), "utimensat")
			},
			Observe: finds(func(out *Outside) string {
				if fi, err := os.Stat(out.Shown + "/f"); err == nil && fi.ModTime().Unix() == 1 {
					return "the file has the new time"
				}
				return ""
			})},
		{ID: "FS-014", Name: "set extended attributes and ACLs outside", Guarantee: profiles.FSReadonly, Severity: Medium,
			Expect: "EROFS or EPERM", Errnos: errnos("EROFS EPERM EACCES EOPNOTSUPP"), References: refs("landlock(7)"), Key: `filesystem`,
			Explain: "An ACL opens a file to others; Landlock does not govern setxattr.",
			Payload: func(in *Inside) Outcome {
				acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 6, 0, 255, 255, 255, 255, 32, 0, 6, 0, 255, 255, 255, 255}
				return Any(Attempt(unix.Setxattr(in.Shown+"/f", "user.canary", []byte("x"), 0), "setxattr user.canary"),
					Attempt(unix.Setxattr(in.Shown+"/f", "system.posix_acl_access", acl, 0), "setxattr of an ACL"))
			}},
		{ID: "FS-015", Name: "truncate(2) a file outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("landlock(7): ABI < 3"), Key: `filesystem`,
			Explain: "truncate takes a path, not a descriptor: a filter on open does not see it.",
			Payload: func(in *Inside) Outcome {
				return Any(Attempt(unix.Truncate(in.Shown+"/f", 0), "truncate"), Attempt(unix.Truncate(in.Canary+"/f", 0), "truncate"))
			},
			Observe: hostUnchanged},
		{ID: "FS-016", Name: "hard-link a host file into the workspace", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EXDEV, EPERM or EACCES", References: refs("fs.protected_hardlinks"), Key: `filesystem`,
			Explain: "The same inode under a writable name is the host's file, writable.",
			Payload: func(in *Inside) Outcome {
				return each([]string{in.Shown + "/f", in.Canary + "/f", in.Home + "/.bashrc"}, func(from string) Outcome {
					to := in.Path("linked" + strings.ReplaceAll(from, "/", "-"))
					return unhide(in, from, os.Link(from, to), to)
				})
			},
			Observe: hostUnchanged},
		{ID: "FS-017", Name: "rename files outside, and into the workspace", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS, EXDEV or EACCES", Errnos: errnos("EROFS EXDEV EACCES ENOENT EPERM EBUSY"), References: refs("srt issue 8"), Key: `filesystem`,
			Explain: "rename needs no open. RENAME_EXCHANGE swaps a file with one of the attacker's.",
			Payload: func(in *Inside) Outcome {
				os.WriteFile(in.Path("mine"), []byte("mine\n"), 0o644)
				return Any(
					Attempt(unix.Renameat2(unix.AT_FDCWD, in.Path("mine"), unix.AT_FDCWD, in.Shown+"/f", unix.RENAME_EXCHANGE), "exchange"),
					Attempt(os.Rename(in.Shown+"/f", in.Shown+"/g"), "rename"),
					Attempt(os.Rename(in.Canary+"/a", in.Canary+"/b"), "rename a hidden file"),
					Attempt(os.Rename(in.Shown+"/big", in.Path("big")), "rename into the workspace"))
			},
			Observe: hostUnchanged},
		{ID: "FS-048", Name: "write a read-only file through /proc/self/mem", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EIO or EACCES, or a private copy", References: refs("CVE-2016-5195"), Key: "filesystem",
			Explain: "Maps a read-only file and writes to the mapping as memory, which ignores page protection.",
			Control: func(in *Inside) Outcome { return appendTo(in.Shown + "/big") }, // the kernel's own mistake is mended: without protection the file is simply writable
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown+"/big", unix.O_RDONLY, 0)
				blockedBy(err, "open")
				mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
				blockedBy(err, "mmap")
				f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
				blockedBy(err, "open /proc/self/mem")
				return Attempt(errOf(f.WriteAt([]byte("canary"), int64(uintptr(unsafe.Pointer(&mem[0]))))), "write through /proc/self/mem")
			},
			Observe: hostUnchanged},
		{ID: "FS-049", Name: "splice into the page cache of a read-only file", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "the content is unchanged", References: refs("CVE-2022-0847"), Key: "filesystem",
			Explain: "A page that was spliced into a pipe must not be written by what is appended to the pipe.",
			Control: func(in *Inside) Outcome { return appendTo(in.Shown + "/big") },
			Payload: func(in *Inside) Outcome {
				path := in.Shown + "/big"
				var pipe [2]int
				must(unix.Pipe(pipe[:]), "pipe")
				unix.SetNonblock(pipe[1], true)
				unix.SetNonblock(pipe[0], true)
				page := make([]byte, 1<<16)
				unix.Write(pipe[1], page) // every slot may now be merged, where the kernel forgets to say no
				unix.Read(pipe[0], page)
				fd, err := unix.Open(path, unix.O_RDONLY, 0)
				blockedBy(err, "open")
				offset := int64(0)
				if _, err := unix.Splice(fd, &offset, pipe[1], nil, 1, 0); err != nil {
					return Blocked("splice: %v", err)
				}
				unix.Write(pipe[1], []byte("CANARY"))
				data, _ := os.ReadFile(path)
				if bytes.Contains(data, []byte("CANARY")) {
					return Escaped("the page cache of %s was written", path)
				}
				return Blocked("the page cache is unchanged")
			},
			Observe: hostUnchanged},
		{ID: "FS-050", Name: "lock a file of the host", Guarantee: profiles.FSReadonly, Severity: Info,
			Expect: "documented: a lock on a shown file is possible", References: refs("flock(2)"), Key: "filesystem",
			Explain: "A lock on a file that can be read keeps a host program that locks it waiting. Hidden files cannot be locked.",
			Payload: func(in *Inside) Outcome {
				f, err := os.Open(in.Canary + "/f")
				blockedBy(err, "open")
				return Attempt(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), "flock of a hidden file")
			}},
		{ID: "FS-052", Name: "change permissions and owners outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EPERM", Errnos: readonly, References: refs("landlock(7)"), Key: "filesystem",
			Explain: "chmod of a private key or of a shown program; Landlock does not govern it.",
			Payload: func(in *Inside) Outcome {
				return Any(Attempt(os.Chmod(in.Shown+"/f", 0o777), "chmod"), Attempt(os.Lchown(in.Shown+"/f", os.Getuid(), os.Getgid()), "chown"),
					Attempt(os.Chmod(in.Canary+"/f", 0o777), "chmod of a hidden file"))
			},
			Observe: finds(func(out *Outside) string {
				for _, path := range []string{out.Shown + "/f", out.Canary + "/f"} {
					if fi, err := os.Stat(path); err == nil && fi.Mode().Perm() == 0o777 {
						return path + " has the new mode"
					}
				}
				return ""
			})},
		{ID: "FS-053", Name: "make directories, links, FIFOs and sockets outside", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS, EACCES or ENOENT", Errnos: readonly, Key: "filesystem",
			Explain: "Every way of making a name that is not open(O_CREAT).",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
				if err == nil {
					err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, in.Shown+"/tmpfile", unix.AT_SYMLINK_FOLLOW)
				}
				sock, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				return Any(Attempt(os.Mkdir(in.Shown+"/d", 0o755), "mkdir"), Attempt(os.Symlink("x", in.Shown+"/l"), "symlink"),
					Attempt(unix.Mkfifo(in.Shown+"/p", 0o644), "mkfifo"), Attempt(err, "O_TMPFILE and linkat"),
					Attempt(unix.Bind(sock, &unix.SockaddrUnix{Name: in.Shown + "/s"}), "bind a unix socket"))
			},
			Observe: stands("{shown}/d", "{shown}/l", "{shown}/p", "{shown}/tmpfile", "{shown}/s")},
		{ID: "FS-054", Name: "write through a shared mapping of a read-only file", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EACCES", Errnos: errnos("EACCES EROFS EPERM"), Key: "filesystem",
			Explain: "Maps shown files shared and writable; also after mprotect.",
			Payload: func(in *Inside) Outcome {
				fd, err := unix.Open(in.Shown+"/big", unix.O_RDWR, 0)
				if err != nil {
					if fd, err = unix.Open(in.Shown+"/big", unix.O_RDONLY, 0); err != nil {
						return Blocked("open: %v", err)
					}
				}
				mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
				blockedBy(err, "mmap")
				blockedBy(unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE), "mprotect")
				mem[0] = 'X'
				return Escaped("wrote through a mapping")
			},
			Observe: hostUnchanged},
		{ID: "FS-055", Name: "reopen a read-only descriptor for writing", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "EROFS or EACCES", Errnos: readonly, References: refs("CVE-2016-9962"), Key: "filesystem",
			Explain: "/proc/self/fd/N opens the file anew with other rights, by the mount that it was opened on.",
			Payload: func(in *Inside) Outcome {
				f, err := os.Open(in.Shown + "/f")
				blockedBy(err, "open")
				again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), os.O_WRONLY|os.O_APPEND, 0)
				if err == nil {
					_, err = again.WriteString("canary\n")
				}
				return Attempt(err, "reopen for writing")
			},
			Observe: hostUnchanged},
		{ID: "FS-058", Name: "write system directories that are shown", Guarantee: profiles.FSReadonly, Severity: High, Setting: Caged,
			Expect: "EROFS or EACCES", Errnos: readonly, Key: `filesystem."/"`,
			Explain: "Every directory of the root that the payload could write without protection.",
			Payload: func(*Inside) Outcome { return each(systemDirs, createIn) },
			Observe: stands(plantedIn(systemDirs...)...)},
	}
}

// systemDirs are directories of the root that FS-058 writes.
var systemDirs = []string{"/boot", "/mnt", "/media", "/etc", "/root", "/var/lib", "/var/spool/cron", "/lib", "/sbin"}

func createIn(dir string) Outcome {
	path := filepath.Join(dir, "planted")
	return Attempt(closed(unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)), "create %s", path)
}

func appendTo(path string) Outcome {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = f.WriteString("# canary\n")
		f.Close()
	}
	return Attempt(err, "append to %s", path)
}

func openWrite(path string) Outcome {
	return Attempt(closed(unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)), "open %s for writing", path)
}

func throughLink(in *Inside, dir string) Outcome {
	link := in.Path("link-" + filepath.Base(dir))
	if err := os.Symlink(dir, link); err != nil {
		return Blocked("symlink: %v", cause(err))
	}
	return createIn(link)
}
