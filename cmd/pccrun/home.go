//go:build !launcher

package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// A homeRequest is what `pccrun home` is asked for.
type homeRequest struct {
	workspace, profile string
	yes, json          bool
	renewed            bool // a run has just ended, and asks no question
}

func homeVerb(args []string) int {
	var r homeRequest
	words, err := options(args, flags{"--workspace": &r.workspace, "--profile": &r.profile, "--yes": &r.yes, "--renewed": &r.renewed, "--json": &r.json})
	want := map[string]int{"list": 1, "size": 1, "reset": 1, "login": 1, "export": 3}
	switch {
	case err != nil:
	case len(words) == 0:
		err = misuse("no action", "one of list, size, reset, login, export")
	case want[words[0]] == 0:
		err = misuse("unknown word "+quote(words[0]), "one of list, size, reset, login, export")
	case len(words) != want[words[0]]:
		err = misuse(words[0]+": wrong number of arguments", "see pccrun help home")
	}
	if err != nil {
		return failSession(err)
	}
	dirs, err := run.Dirs()
	if err != nil {
		return failSession(err)
	}
	list, err := homes.List(dirs.State)
	if err != nil {
		return failSession(err)
	}
	if words[0] == "list" {
		defer slow("measuring homes")()
		for i := range list {
			if err := homes.Measure(dirs.State, &list[i]); err != nil {
				return failSession(err)
			}
		}
		return listHomes(list, r.json)
	}
	e, err := r.find(list)
	if err == nil && (words[0] == "size" || words[0] == "reset" && !r.yes) {
		defer slow("measuring the home")()
		err = homes.Measure(dirs.State, e)
	}
	if err != nil {
		return failSession(err)
	}
	switch words[0] {
	case "size":
		return result(r.json, object{{"workspace", e.Record.Workspace.Path}, {"profile", e.Record.Name}, {"bytes", e.Size}}, printText, homeSize(e))
	case "reset":
		return r.reset(dirs.State, e)
	case "login":
		return r.login(dirs.State, e)
	}
	return r.export(dirs.State, e, words[1], words[2])
}

// listHomes prints all homes.
func listHomes(list []homes.Entry, asJSON bool) int {
	rows := []object{}
	for _, e := range list {
		if asJSON {
			rows = append(rows, object{
				{"key", e.Key}, {"workspace", e.Record.Workspace.Path}, {"profile", e.Record.Name}, {"source", e.Record.Profile},
				{"used", e.Record.Used.UTC().Format(time.RFC3339)}, {"bytes", e.Size}, {"state", homeState(&e)},
			})
			continue
		}
		if e.Bad != "" {
			printf("%-16s  %7s  %s: %s\n", "", homeSize(&e), printable(e.Key), printable(e.Bad))
			continue
		}
		text := ""
		if state := homeState(&e); state != "kept" {
			text = "  " + state
		}
		printf("%s  %7s  %-9s %s%s\n", e.Record.Used.UTC().Format("2006-01-02 15:04"), homeSize(&e), printable(e.Record.Name), printable(e.Record.Workspace.Path), text)
	}
	if asJSON {
		printJSON(object{{"homes", rows}})
	}
	return 0
}

// homeSize is what a home takes.
func homeSize(e *homes.Entry) string {
	if e.More {
		return ">" + sizeText(e.Size)
	}
	return sizeText(e.Size)
}

// homeState says in a word or two how a home stands.
func homeState(e *homes.Entry) string {
	switch {
	case e.Bad != "":
		return "unreadable"
	case e.InUse:
		return "in use"
	case e.Gone:
		return "its workspace was deleted"
	case e.Old:
		return "its workspace was replaced"
	}
	return "kept"
}

// find finds the home of the workspace.
func (r *homeRequest) find(list []homes.Entry) (*homes.Entry, error) {
	workspace := r.workspace
	p, err := profiles.Resolve(profiles.Request{Host: profiles.ThisHost(), Workspace: workspace, Profile: "default"})
	switch {
	case err == nil:
		workspace = p.Workspace
	case workspace == "" || !filepath.IsAbs(workspace): // of one that is gone the path will do
		return nil, err
	}
	var found []*homes.Entry
	var names []string
	for i := range list {
		e := &list[i]
		if e.Bad != "" || e.Record.Workspace.Path != workspace || strings.Contains(e.Key, "-") || r.profile != "" && e.Record.Name != r.profile {
			continue
		}
		found, names = append(found, e), append(names, e.Record.Name)
	}
	switch len(found) {
	case 0:
		return nil, misuse("there is no home for "+workspace+withProfile(r.profile), "pccrun home list shows all")
	case 1:
		return found[0], nil
	}
	return nil, misuse("there are several homes for "+workspace, "--profile "+strings.Join(names, ", or --profile "))
}

func withProfile(name string) string {
	if name == "" {
		return ""
	}
	return " and the profile " + name
}

// reset removes a home.
func (r *homeRequest) reset(stateDir string, e *homes.Entry) int {
	if !r.yes {
		fail("home reset: the home of "+e.Record.Workspace.Path+", profile "+e.Record.Name+" ("+homeSize(e)+"), would be deleted, with its login", "--yes removes it")
		return failed
	}
	err := homes.Remove(stateDir, e.Key)
	if errors.Is(err, homes.ErrInUse) {
		fail("home reset: "+err.Error(), "pccrun ps lists running sessions")
		return failed
	}
	if err != nil {
		return failSession(err)
	}
	return result(r.json, object{{"workspace", e.Record.Workspace.Path}, {"profile", e.Record.Name}, {"removed", true}}, say, "")
}

// export copies something out of a home.
func (r *homeRequest) export(stateDir string, e *homes.Entry, name, to string) int {
	p, err := profiles.Resolve(profiles.Request{Host: profiles.ThisHost(), Workspace: r.workspace, Profile: strings.TrimSuffix(e.Record.Name, homes.NoLogin), Home: profiles.Persist.String()})
	if err != nil {
		return failWith(err)
	}
	name = strings.TrimPrefix(strings.TrimPrefix(path.Clean(name), p.Home+"/"), "~/")
	if !filepath.IsLocal(name) || name == "." {
		return failSession(misuse("export: "+quote(name)+": want a path in the home", ""))
	}
	var logins []string
	for _, s := range p.Seeds {
		if rest, in := strings.CutPrefix(s.Path, p.Home+"/"); in && s.Mode == profiles.Login {
			logins = append(logins, rest)
		}
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, path.Base(name))
	}
	left, err := homes.Export(stateDir, e.Key, name, to, logins)
	if err != nil {
		return failSession(err)
	}
	if r.json {
		printJSON(object{{"path", name}, {"to", to}, {"left_out", left}})
		return 0
	}
	for _, name := range left {
		say("left out: " + quote("~/"+name))
	}
	if len(left) > 0 && left[0] == name {
		return failed
	}
	say("copied to " + shell.Quote(to))
	return 0
}
