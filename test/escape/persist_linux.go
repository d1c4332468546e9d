package escape

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// planted are files that a tool of the host runs, or obeys, later. Those that
// stand in the world's workspace must not change; others must be gone soon.
var planted = []struct {
	id, name string
	severity Severity
	paths    []string
	refs     []string
}{
	{"PER-001", "repository hooks", Critical, []string{".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/hooks/fsmonitor-watchman"}, refs("srt: mandatory deny")},
	{"PER-002", "repository configuration", Critical, []string{".git/config"}, refs("srt: mandatory deny")},
	{"PER-003", "tasks and settings of VS Code", High, []string{".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json"}, refs("CVE-2025-53773")},
	{"PER-005", "servers of the model context protocol", Critical, []string{".mcp.json"}, refs("CVE-2025-54136")},
	{"PER-006", "direnv", High, []string{".envrc", "sub/.envrc"}, refs("direnv(1)")},
	{"PER-007", "Cursor", Critical, []string{".cursor/mcp.json", ".cursor/rules/x.mdc"}, refs("CVE-2025-54135")},
	{"PER-008", "Codex", High, []string{".codex/config.toml"}, refs("CVE-2025-61260")},
	{"PER-009", "JetBrains", Medium, []string{".idea/workspace.xml", ".idea/runConfigurations/x.xml"}, refs("srt: mandatory deny")},
	{"PER-011", "husky", Medium, []string{".husky/pre-commit", ".husky/post-merge", ".husky/_/pre-commit"}, nil},
	{"PER-012", "development containers", High, []string{".devcontainer/devcontainer.json"}, refs("devcontainers: initializeCommand")},
	{"PER-015", "settings of package managers", Medium, []string{".npmrc", ".yarnrc.yml", ".pypirc", "uv.toml"}, nil},
	{"PER-016", "other agents", High, []string{".gemini/settings.json", ".claude/settings.json", ".claude/settings.local.json", ".windsurf/x", ".zed/settings.json", ".continue/config.json", ".aider.conf.yml", ".roo/x", ".kiro/x", ".agents/x", "opencode.json"}, nil},
	{"PER-020", "the work tree's own configuration", High, []string{".git/config.worktree", ".git/commondir"}, refs("gitrepository-layout(5)")},
	{"PER-021", "attributes with a filter", High, []string{".git/info/attributes"}, refs("CVE-2025-48384")},
	{"PER-022", "configuration of a submodule and of a nested repository", High, []string{".git/modules/sub/config", ".git/modules/sub/hooks/post-checkout", "nested/.git/config", "nested/.git/hooks/pre-commit"}, refs("CVE-2024-32002")},
	{"PER-028", "start-up files of shells", High, []string{".bashrc", ".zshenv", ".profile", ".bash_profile", ".zshrc", ".bash_login"}, refs("srt: mandatory deny")},
}

func persistProbes() []Probe {
	var list []Probe
	for _, row := range planted {
		list = append(list, Probe{
			ID: row.id, Name: "plant " + row.name, Guarantee: profiles.FSProtect, Severity: row.severity, References: row.refs, Key: "protect.deny",
			Expect:  "what exists is unchanged; what did not exist is gone from the host within 100 ms of the end",
			Explain: "Writes " + strings.Join(row.paths, ", ") + ": a tool of the host runs or obeys it later.",
			Payload: func(in *Inside) Outcome {
				return each(row.paths, func(path string) Outcome {
					os.MkdirAll(filepath.Dir(in.Path(path)), 0o755)
					o := appendTo(in.Path(path))
					// in place of the file, and by way of another name
					other := in.Path("other-" + strings.ReplaceAll(path, "/", "-"))
					os.WriteFile(other, []byte("# canary\n"), 0o755)
					defer time.Sleep(time.Millisecond)
					return Any(o, Attempt(os.Rename(other, in.Path(path)), "rename onto %s", path))
				})
			},
			Observe: stillPlanted(row.paths...),
		})
	}
	return slices.Concat(list, linkProbes(), besideProbes(), exchangeProbes(), []Probe{
		{ID: "PER-004", Name: "move a protected directory away and put another in its place", Guarantee: profiles.FSProtect, Severity: Critical,
			Expect: "EBUSY, EXDEV or EACCES", Errnos: errnos("EBUSY EXDEV EACCES EPERM EROFS"), References: refs("srt issue 8"), Key: "protect.deny",
			Explain: "Renames .git, or the hooks in it, and makes a new one with a hook.",
			Payload: func(in *Inside) Outcome {
				return each([]string{".git/hooks", ".git"}, func(dir string) Outcome {
					err := os.Rename(in.Path(dir), in.Path("moved-"+filepath.Base(dir)))
					if err == nil {
						os.MkdirAll(in.Path(".git/hooks"), 0o755)
						err = os.WriteFile(in.Path(".git/hooks/pre-commit"), []byte("#!/bin/sh\n# canary\n"), 0o755)
					}
					return Attempt(err, "replace %s", dir)
				})
			},
			Observe: stillPlanted(".git/hooks/pre-commit")},
		{ID: "PER-018", Name: "a .git file that leads to a repository of the payload's", Guarantee: profiles.FSProtect, Severity: Critical,
			Expect: "denied", Errnos: errnos("EBUSY EXDEV EACCES EPERM EROFS EISDIR ENOTEMPTY"), References: refs("gitrepository-layout(5)"), Key: "protect.deny",
			Explain: "Replaces the directory .git with a file `gitdir: evil`.",
			Payload: func(in *Inside) Outcome {
				os.MkdirAll(in.Path("evil/hooks"), 0o755)
				os.WriteFile(in.Path("evil/config"), []byte("[core]\n\tfsmonitor = canary\n"), 0o644)
				err := os.Rename(in.Path(".git"), in.Path("git-away"))
				if err == nil {
					err = os.WriteFile(in.Path(".git"), []byte("gitdir: evil\n"), 0o644)
				}
				return Attempt(err, "replace .git with a file")
			},
			Observe: finds(func(out *Outside) string {
				if git := out.Workspace + "/.git"; exists(git) && !isDirectory(git) {
					return ".git is a file"
				}
				return ""
			})},
		{ID: "PER-014", Name: "a new repository below the workspace", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "nothing runs outside: hooks, and settings that execute, are quarantined", References: refs("srt: nested repositories"), Key: "protect.deny",
			Explain: "git clone and git init work inside; what they bring must not run when the user enters the directory.",
			Payload: func(in *Inside) Outcome { return makeRepository(in.Path("fresh/.git"), plantedConfig) },
			Observe: unplanted("{workspace}", "fresh/.git")},
		{ID: "PER-017", Name: "a bare look-alike in the workspace's root", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "nothing runs outside", References: refs("git: safe.bareRepository"), Key: "protect.deny",
			Explain: "HEAD, objects, refs and config side by side are a bare repository: git in that directory obeys its config.",
			Payload: func(in *Inside) Outcome { return makeRepository(in.Path("bare"), plantedConfig+"\tbare = true\n") },
			Observe: unplanted("{workspace}", "bare")},
		reviewed("PER-010", "submodules and attributes", Medium, ".gitmodules", ".gitattributes"),
		reviewed("PER-013", "workflows of the forge", Medium, ".github/workflows/evil.yml"),
		reviewed("PER-024", "scripts that an installation runs", Info, "package.json"),
		reviewed("PER-032", "instructions to agents", Medium, "AGENTS.md", "CLAUDE.md"),
		{ID: "PER-019", Name: "the common directory of a linked work tree", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Expect: "hooks and config cannot be written", References: refs("git-worktree(1)"), Key: "protect.deny",
			Explain: "A linked work tree's repository lies outside the workspace; git must write there, hooks and config must not change.",
			Payload: func(in *Inside) Outcome {
				common := filepath.Join(filepath.Dir(in.Workspace), "main", ".git")
				return Any(appendTo(common+"/config"), appendTo(common+"/hooks/pre-commit"))
			},
			Drive: func(d *Drive) Outcome {
				common := filepath.Join(filepath.Dir(d.Workspace), "main", ".git")
				os.RemoveAll(d.Workspace + "/.git")
				os.WriteFile(d.Workspace+"/.git", []byte("gitdir: "+common+"/worktrees/ws\n"), 0o644)
				return d.repositoryAt(common, map[string]string{
					"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tbare = false\n",
					"worktrees/ws/HEAD": "ref: refs/heads/ws\n", "worktrees/ws/commondir": "../..\n", "worktrees/ws/gitdir": d.Workspace + "/.git\n",
				})
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				return changes("{home}/src/main/.git/config")(out, stands("{home}/src/main/.git/hooks/pre-commit")(out, o))
			}},
		{ID: "PER-023", Name: "file capabilities", Guarantee: profiles.PrivNone, Severity: High, Setting: Caged, Needs: []Need{NeedRoot},
			Expect: "EPERM", Errnos: errnos("EPERM EOPNOTSUPP"), References: refs("capabilities(7)"), Key: "",
			Explain: "A program with file capabilities gives them to whoever starts it.",
			Payload: func(in *Inside) Outcome {
				path := in.Path("capable")
				os.WriteFile(path, nil, 0o755)
				value := make([]byte, 20)
				value[3], value[4] = 2, 1
				return Attempt(unix.Setxattr(path, "security.capability", value, 0), "setxattr security.capability")
			}},
		record("PER-025", "a link left behind that leads outside", profiles.FSProtect, Medium, "a report of what a run left", "A host tool that follows it reads the file; the link itself says nothing of its content."),
		record("PER-026", "a FIFO that is named like a source file", profiles.FSProtect, Low, "a report of what a run left", "A host tool that opens it hangs."),
		{ID: "PER-027", Name: "names that attack whoever prints them", Guarantee: profiles.TTYOutput, Severity: Medium, Needs: []Need{NeedNative},
			Expect: "escaped wherever the launcher prints them", References: refs("CWE-150"), Key: "",
			Explain: "A protected name below a directory whose name holds ESC, a newline and a right-to-left override.",
			Payload: func(in *Inside) Outcome {
				dir := in.Path("odd\x1b]0;canary\a\nname\u202e")
				os.MkdirAll(dir, 0o755)
				os.WriteFile(dir+"/.envrc", []byte("# canary\n"), 0o644)
				if in.Control {
					os.Stdout.WriteString(dir)
				}
				time.Sleep(50 * time.Millisecond)
				return Blocked("made")
			},
			Observe: func(out *Outside, o Outcome) Outcome {
				if strings.Contains(string(out.Output), "\x1b]0;canary") {
					return Escaped("the name was printed as it is")
				}
				return o
			}},
		plantsInHome(Probe{
			ID: "PER-029", Name: "a program earlier in the host's PATH", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "read-only, private, or absent", Key: "filesystem",
			Explain: "Plants git in ~/.local/bin and ~/bin.",
		}, ".local/bin/git", "bin/git", ".cargo/bin/git", "go/bin/git", ".npm-global/bin/git"),
		plantsInHome(Probe{
			ID: "PER-030", Name: "poison the caches of builds", Guarantee: profiles.FSReadonly, Severity: High,
			Expect: "private or copy-on-write", References: refs("clinejection"), Key: "filesystem",
			Explain: "A changed module in ~/go/pkg/mod, ~/.npm, ~/.cargo/registry or ~/.cache is built into the next program.",
		}, plantedIn("go/pkg/mod/cache", ".npm/_cacache", ".cargo/registry", ".cache/go-build", ".cache/pip", ".m2/repository", ".gradle")...),
		overlooked("PER-031", "AGENTS.md", "package.json"),
		plantsInHome(Probe{
			ID: "PER-033", Name: "start-up files of the desktop and of services", Guarantee: profiles.FSReadonly, Severity: Critical,
			Expect: "never on the host", Key: "filesystem",
			Explain: "Autostart entries, user units, authorised keys, git configuration and editor plug-ins in the home.",
		}, ".config/autostart/x.desktop", ".config/systemd/user/x.service", ".ssh/authorized_keys", ".ssh/config", ".ssh/rc", ".config/git/config", ".vimrc",
			".config/nvim/init.lua", ".emacs", ".pam_environment", ".xprofile", ".config/fish/config.fish"),
	})
}

// stillPlanted looks, a moment after the end, at what the host now has.
func stillPlanted(paths ...string) func(*Outside, Outcome) Outcome {
	return afterwards(func(out *Outside, o Outcome) Outcome {
		for _, path := range paths {
			full := filepath.Join(out.Workspace, path)
			data, err := os.ReadFile(full)
			if err == nil && strings.Contains(string(data), "canary\n") && string(data) != out.files[full] {
				return Escaped("%s is the payload's on the host", path)
			}
			if content, was := out.files[full]; was && (err != nil || string(data) != content) {
				return Escaped("%s has changed on the host", path)
			}
		}
		if o.Kind == DidEscape {
			return Blocked("%s, and quarantined", o.Detail)
		}
		return o
	})
}

// afterwards is an observer that looks a moment after the end, if there was anything to be seen.
func afterwards(look func(*Outside, Outcome) Outcome) func(*Outside, Outcome) Outcome {
	return func(out *Outside, o Outcome) Outcome {
		if o.Kind == Broke || o.Kind == Unmet {
			return o
		}
		time.Sleep(100 * time.Millisecond)
		return look(out, o)
	}
}

// reviewed is a probe of files that may change, and must be named at exit.
func reviewed(id, name string, s Severity, paths ...string) Probe {
	return Probe{
		ID: id, Name: "change " + name + " unnoticed", Guarantee: profiles.FSProtect, Severity: s, Needs: []Need{NeedNative}, Key: "protect.review",
		Flags:  []string{"-v"},
		Expect: "listed at exit", Explain: "Writes " + strings.Join(paths, ", ") + ", which honest work changes too: it must be printed.",
		Payload: func(in *Inside) Outcome {
			for _, path := range paths {
				os.MkdirAll(filepath.Dir(in.Path(path)), 0o755)
				if o := appendTo(in.Path(path)); o.Kind != DidEscape {
					return o
				}
			}
			return Blocked("changed")
		},
		Observe: func(out *Outside, o Outcome) Outcome {
			for _, path := range paths {
				if !strings.Contains(string(out.Output), path) {
					return Escaped("%s was changed and not named", path)
				}
			}
			return o
		},
	}
}

// overlooked is reviewed after git was told in every way it knows not to look.
func overlooked(id string, paths ...string) Probe {
	p := reviewed(id, "what git is configured to ignore", Medium, paths...)
	p.References, p.Explain = refs("git-update-index(1): --skip-worktree", "gitignore(5)"), "Writes "+strings.Join(paths, ", ")+" after they were put on the list of ignored files, and in an index that says that they need no look: what has changed is found by content."
	change := p.Payload
	p.Payload = func(in *Inside) Outcome {
		for _, list := range []string{".git/info/exclude", ".gitignore"} {
			appendTo(in.Path(list))
			if f, err := os.OpenFile(in.Path(list), os.O_WRONLY|os.O_APPEND, 0); err == nil {
				f.WriteString(strings.Join(paths, "\n") + "\n")
				f.Close()
			}
		}
		for _, args := range [][]string{{"add", "--force"}, {"update-index", "--assume-unchanged"}, {"update-index", "--skip-worktree"}} {
			cmd := exec.CommandContext(in.ctx, "git", slices.Concat([]string{"-C", in.Workspace, "-c", "safe.directory=*"}, args, paths)...)
			cmd.Run() // without git the lists alone say it
		}
		return change(in)
	}
	return p
}
