package escape

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// besideProbes plant what git executes in directories that the command may write
// and that are not the workspace: another repository of the user's, and what an
// agent keeps of its own, where the agent outside runs git in its turn.
func besideProbes() []Probe {
	const other, kept = "src/other", ".cache/agent/snapshot"
	return []Probe{
		{ID: "PER-037", Name: "a writable repository outside the workspace", Guarantee: profiles.FSProtect, Severity: Critical, Needs: []Need{NeedNative},
			Flags: []string{"--write", "{home}/" + other}, Expect: "protected as in the workspace; new names are quarantined", References: refs("git-config(1)", "direnv(1)"), Key: "protect.deny",
			Explain: "A second repository is given for writing. Its hooks and its configuration, a name that direnv executes, and a repository made in it would run when the user goes there.",
			Payload: func(in *Inside) Outcome { return plantIn(filepath.Join(in.Home, other), "", "fresh/.git") },
			Drive:   func(d *Drive) Outcome { return d.repositoryAt(filepath.Join(d.Home, other, ".git"), plainRepository) },
			Observe: unplanted("{home}/"+other, ".git", "fresh/.git")},
		{ID: "PER-038", Name: "repositories in what an agent or a cache keeps", Guarantee: profiles.FSProtect, Severity: High, Needs: []Need{NeedNative},
			Flags: []string{"--write", "{home}/" + kept}, Expect: "hooks protected, settings that execute removed, a new repository quarantined", References: refs("git-config(1)"), Key: "protect.deny",
			Explain: "An agent keeps snapshots of the workspace in repositories of its own, and so does cargo what it has fetched: they must be written. Outside git is run in them.",
			Payload: func(in *Inside) Outcome { return plantIn(filepath.Join(in.Home, kept), "old", "fresh") },
			Drive:   func(d *Drive) Outcome { return d.repositoryAt(filepath.Join(d.Home, kept, "old"), plainRepository) },
			Observe: unplanted("{home}/"+kept, "old", "fresh")},
		{ID: "PER-039", Name: "a link out of what an agent keeps", Guarantee: profiles.FSProtect, Severity: Critical, Needs: []Need{NeedNative},
			Flags: []string{"--profile", "codex"}, Expect: "the agent has a home of its own inside", References: refs("symlink(7)", "CWE-59"), Key: "protect.deny",
			Explain: "In place of the history that an agent appends to, with text from inside, stands a link to a start-up file of the home, or one to a link that a later run would make so.",
			Payload: func(in *Inside) Outcome {
				state := filepath.Join(in.Home, outwardState)
				os.MkdirAll(filepath.Join(state, outwardTmp, "s"), 0o700)
				return Any(Attempt(os.Symlink("../"+outwardRC, filepath.Join(state, outwardLog)), "link out of %s", outwardState),
					Attempt(os.Symlink(outwardTmp+"/s/x", filepath.Join(state, outwardHop)), "link to what a session has for itself"),
					Attempt(os.Symlink("../../../../"+outwardRC, filepath.Join(state, outwardTmp, "s/x")), "make one there"))
			},
			Drive: func(d *Drive) Outcome {
				must(os.MkdirAll(filepath.Join(d.Home, outwardState), 0o700))
				return d.Run()
			},
			Observe: afterwards(func(out *Outside, _ Outcome) Outcome {
				// The agent outside: each file is opened as programs open a log.
				for _, name := range []string{outwardLog, outwardHop} {
					f, err := os.OpenFile(filepath.Join(out.Home, outwardState, name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
					must(err)
					f.WriteString("# canary\n")
					f.Close()
					if exists(filepath.Join(out.Home, outwardRC)) {
						return Escaped("what is appended to %s is in ~/%s", name, outwardRC)
					}
				}
				return Blocked("what the agent appends stays in %s", outwardState)
			})},
		{ID: "PER-040", Name: "programs of a session of the agent outside", Guarantee: profiles.FSProtect, Severity: Critical, Needs: []Need{NeedNative},
			Flags: []string{"--profile", "codex"}, Expect: "the agent has a home of its own inside", References: refs("CWE-427"), Key: "protect.deny",
			Explain: "Plants a program in the directory that an agent which goes on outside has first in its PATH, appends to what its shells source, and names a program that the next one starts.",
			Payload: func(in *Inside) Outcome {
				state := filepath.Join(in.Home, outwardState)
				return each(append([]string{"environments.toml"}, besideSession...), func(name string) Outcome {
					os.MkdirAll(filepath.Dir(filepath.Join(state, name)), 0o700)
					return appendTo(filepath.Join(state, name))
				})
			},
			Drive: func(d *Drive) Outcome {
				for _, name := range besideSession {
					d.write(filepath.Join(d.Home, outwardState, name), "own\n")
				}
				return d.Run()
			},
			Observe: afterwards(func(out *Outside, _ Outcome) Outcome {
				state := filepath.Join(out.Home, outwardState)
				for _, name := range besideSession {
					if data, err := os.ReadFile(filepath.Join(state, name)); err != nil || string(data) != "own\n" {
						return Escaped("~/%s/%s of the session outside has changed", outwardState, name)
					}
				}
				if exists(filepath.Join(state, "environments.toml")) {
					return Escaped("~/%s/environments.toml names what the next one starts", outwardState)
				}
				return Blocked("nothing that the agent outside executes has changed")
			})},
	}
}

// What the agent of PER-039 keeps, and what stands for a start-up file.
const outwardState, outwardLog, outwardHop, outwardRC, outwardTmp = ".codex", "history.jsonl", "log", ".canaryrc", "tmp/arg0-linux"

// besideSession is what a session of the agent outside, which goes on, executes: the
// first directory of its PATH, and what its shells source.
var besideSession = []string{outwardTmp + "/own/git", "shell_snapshots/own.sh"}

const plantedConfig = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = canary\n"

// plainRepository is what a repository of the user's holds.
var plainRepository = map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\trepositoryformatversion = 0\n", "hooks/pre-commit.sample": "#!/bin/sh\n"}

// gitDirs makes the directories of a repository.
func gitDirs(git string) {
	for _, dir := range []string{"objects", "refs/heads", "hooks"} {
		os.MkdirAll(filepath.Join(git, dir), 0o755)
	}
}

// repositoryAt makes a repository before the payload runs.
func (d *Drive) repositoryAt(git string, files map[string]string) Outcome {
	gitDirs(git)
	for name, content := range files {
		d.write(filepath.Join(git, name), content)
	}
	return d.Run()
}

// makeRepository makes one that has a hook, from inside.
func makeRepository(git, config string) Outcome {
	gitDirs(git)
	os.WriteFile(filepath.Join(git, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644)
	os.WriteFile(filepath.Join(git, "hooks/post-checkout"), []byte("#!/bin/sh\n# canary\n"), 0o755)
	return Attempt(os.WriteFile(filepath.Join(git, "config"), []byte(config), 0o644), "plant in %s", git)
}

// plantIn changes a repository that stood, "" for one named .git, and makes another.
func plantIn(top, stood, fresh string) Outcome {
	if stood == "" {
		stood = ".git"
		os.WriteFile(filepath.Join(top, ".envrc"), []byte("# canary\n"), 0o644)
	}
	os.WriteFile(filepath.Join(top, stood, "hooks/post-checkout"), []byte("#!/bin/sh\n# canary\n"), 0o755)
	os.WriteFile(filepath.Join(top, stood, "config"), []byte(plantedConfig), 0o644)
	return makeRepository(filepath.Join(top, fresh), plantedConfig)
}

// unplanted looks from outside for what git or direnv would execute.
func unplanted(top string, gitDirs ...string) func(*Outside, Outcome) Outcome {
	return afterwards(func(out *Outside, _ Outcome) Outcome {
		top := out.names().Replace(top)
		for _, git := range gitDirs {
			if data, err := os.ReadFile(filepath.Join(top, git, "config")); err == nil && strings.Contains(string(data), "fsmonitor") {
				return Escaped("core.fsmonitor stands in %s", git)
			}
			if exists(filepath.Join(top, git, "hooks/post-checkout")) {
				return Escaped("a hook stands in %s", git)
			}
		}
		if top != out.Workspace && exists(filepath.Join(top, ".envrc")) { // the workspace has had one
			return Escaped(".envrc stands there")
		}
		return Blocked("nothing that git executes is new")
	})
}
