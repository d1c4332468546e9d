package gitconfig

import (
	"slices"
	"strings"
	"unicode"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// A check says why a value of a key is not taken over, "" for one that is.
type check func(m *merger, c *Context, value string) string

// allowed are the keys that are taken over, with what is asked of each of their values.
var allowed = map[string]check{
	"branch.*.remote":      configuredRemote,
	"branch.*.pushremote":  configuredRemote,
	"branch.*.merge":       fullRef,
	"branch.*.rebase":      oneOf(booleans + " merges m interactive i"),
	"branch.*.description": anyText,

	"remote.*.url":     address,
	"remote.*.pushurl": address,
	"remote.*.fetch":   refspec,
	"remote.*.tagopt":  oneOf("--tags --no-tags"),
	"remote.*.prune":   oneOf(booleans),

	"submodule.*.url":    address,
	"submodule.*.active": oneOf(booleans),
	"submodule.*.branch": branch,

	"user.name":  anyText,
	"user.email": anyText,

	"pull.rebase":          oneOf(booleans + " merges m interactive i"),
	"pull.ff":              oneOf(booleans + " only"),
	"push.default":         oneOf("nothing current upstream tracking simple matching"),
	"push.autosetupremote": oneOf(booleans),
	"push.followtags":      oneOf(booleans),
	"merge.ff":             oneOf(booleans + " only"),
	"merge.conflictstyle":  oneOf("merge diff3 zdiff3"),
	"rebase.autostash":     oneOf(booleans),
	"rebase.autosquash":    oneOf(booleans),
	"diff.algorithm":       oneOf("default myers minimal patience histogram"),
	"diff.renames":         oneOf(booleans + " copy copies"),
	"init.defaultbranch":   branch,
	"core.autocrlf":        oneOf(booleans + " input"),
	"core.eol":             oneOf("lf crlf native"),
	"core.quotepath":       oneOf(booleans),
	"core.commentchar":     commentChar,

	"core.sparsecheckout":     oneOf(booleans),
	"core.sparsecheckoutcone": oneOf(booleans),
	"index.sparse":            oneOf(booleans),

	"lfs.url":                     address,
	"lfs.repositoryformatversion": oneOf("0"),
	"lfs.*.access":                oneOf("none basic private negotiate"),
}

// addresses are those among them that say where git fetches from, or pushes to.
var addresses = map[string]bool{"remote.*.url": true, "remote.*.pushurl": true, "submodule.*.url": true, "lfs.url": true}

const booleans = "true false yes no on off 1 0"

func oneOf(words string) check {
	list := strings.Fields(words)
	return func(_ *merger, _ *Context, value string) string {
		if slices.Contains(list, strings.ToLower(value)) {
			return ""
		}
		return "pccrun does not know this value"
	}
}

// judge returns which of the changed keys are not taken over, and why; "" for what is no change.
func (m *merger) judge(c Context) map[key]string {
	refused := map[key]string{}
	for _, k := range m.changed {
		if k.Places() && c.Submodule {
			refused[k] = ""
		} else if reason := m.reason(k, &c); reason != "" {
			refused[k] = reason
		}
	}
	// A branch may name a remote only if that is taken over as well.
	for _, k := range m.changed {
		if _, no := refused[k]; no || general(k) != "branch.*.remote" && general(k) != "branch.*.pushremote" {
			continue
		}
		for _, name := range m.copied[k] {
			url := key{Section: "remote", Sub: name, Key: "url"}
			if _, no := refused[url]; name != "." && no && len(m.host[url]) == 0 {
				refused[k] = "its remote has no address that pccrun saves"
			}
		}
	}
	return refused
}

// reason says why a change is not taken over, "" for one that is.
func (m *merger) reason(k key, c *Context) string {
	if len(m.copied[k]) == 0 {
		switch {
		case m.emptied():
			return "the run emptied the file"
		case m.gone(k):
			return ""
		}
	}
	test := allowed[general(k)]
	if k.Section == "color" {
		test = colour
	}
	if test == nil {
		return why(k, m.copied[k])
	}
	if m.continued[k] {
		return "it is continued on another line"
	}
	if reason := subsection(k); reason != "" && len(m.copied[k]) > 0 {
		return reason
	}
	for _, value := range m.copied[k] {
		if value == bare {
			value = "true"
		}
		printed := value
		if general(k) == "branch.*.description" { // which has lines
			printed = strings.ReplaceAll(value, "\n", "")
		}
		if reason := text(printed); reason != "" {
			return reason
		}
		if reason := test(m, c, value); reason != "" {
			return reason
		}
	}
	return ""
}

// emptied reports whether the copy lacks the key that git writes into the configuration of every repository, and never
// removes: somebody has emptied or replaced the file.
func (m *merger) emptied() bool {
	format := key{Section: "core", Key: "repositoryformatversion"}
	return len(m.base[format]) > 0 && len(m.copied[format]) == 0
}

// gone reports whether nothing is left of the branch, the remote or the submodule that a key belongs to:
// git removes all that is said of one.
func (m *merger) gone(k key) bool {
	if k.Sub == "" || k.Section != "branch" && k.Section != "remote" && k.Section != "submodule" {
		return false
	}
	for other := range m.copied {
		if other.Section == k.Section && other.Sub == k.Sub {
			return false
		}
	}
	return true
}

// why says what is wrong with a key that is not on the list.
func why(k key, list []string) string {
	for _, k.Value = range append(list, "") {
		switch k.Use() {
		case vcs.UseCommand:
			return "it names a program"
		case vcs.UseHooks, vcs.UseDir:
			return "it names a directory of programs"
		}
	}
	switch k.Section {
	case "include", "includeif":
		return "it names another configuration"
	case "filter", "alias", "difftool", "mergetool", "gpg":
		return "it names programs"
	case "url":
		return "it redirects addresses"
	case "extensions":
		return "it changes the format of the repository"
	case "http", "https", "credential", "safe", "protocol":
		return "it changes what git trusts"
	}
	return "pccrun does not save this key"
}

// subsection says what is wrong with the name of a branch, a remote or a submodule.
func subsection(k key) string {
	bad := text(k.Sub) != ""
	switch k.Section {
	case "branch":
		bad = !isBranch(k.Sub)
	case "remote":
		bad = !isBranch(k.Sub) || strings.Trim(k.Sub, letters+"._/+@-") != ""
	case "submodule":
		bad = bad || k.Sub == "" || k.Sub[0] == '-' || strings.Contains("/"+k.Sub+"/", "/../") || strings.ContainsAny(k.Sub, `\"`)
	case "lfs":
		if k.Sub != "" {
			var c Context
			bad = address(nil, &c, k.Sub) != ""
		}
	}
	if bad {
		return "pccrun does not save this name"
	}
	return ""
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// maxText bounds a value.
const maxText = 2048

// text says what is wrong with a value of any kind.
func text(value string) string {
	if len(value) > maxText {
		return "its value is too long"
	}
	for _, r := range value {
		if !unicode.IsPrint(r) {
			return "its value has a character that cannot be printed"
		}
	}
	return ""
}

func anyText(*merger, *Context, string) string { return "" } // [text] has looked at it

func commentChar(_ *merger, _ *Context, value string) string {
	if value == "auto" || len(value) == 1 && strings.Trim(value, letters) != "" {
		return ""
	}
	return "pccrun does not know this value"
}

func colour(_ *merger, _ *Context, value string) string {
	if strings.Trim(value, letters+" #-") != "" {
		return "its value is no colour"
	}
	return ""
}

// isBranch reports whether a repository may keep a branch of that name.
func isBranch(name string) bool { return vcs.IsRef(name, "") && text(name) == "" }

func branch(_ *merger, _ *Context, value string) string {
	if value == "." || isBranch(value) {
		return ""
	}
	return "its value is no name of a branch"
}

func fullRef(_ *merger, _ *Context, value string) string {
	if strings.HasPrefix(value, "refs/") && isBranch(value) {
		return ""
	}
	return "its value is no reference"
}

func configuredRemote(m *merger, _ *Context, value string) string {
	url := key{Section: "remote", Sub: value, Key: "url"}
	if value == "." || len(m.copied[url]) > 0 && (len(m.host[url]) > 0 || !slices.Equal(m.base[url], m.copied[url])) {
		return ""
	}
	return "its value is no remote that is configured"
}

// refspec lets git write what it fetches where nothing but a remote's branches and tags is.
func refspec(_ *merger, _ *Context, value string) string {
	spec := strings.TrimPrefix(value, "+")
	if rest, ok := strings.CutPrefix(value, "^"); ok && isPattern(rest) {
		return ""
	}
	from, to, _ := strings.Cut(spec, ":")
	if !isPattern(from) || !isPattern(to) || strings.Count(from, "*") != strings.Count(to, "*") {
		return "it is no refspec of two references"
	}
	if !strings.HasPrefix(to, "refs/remotes/") && !strings.HasPrefix(to, "refs/tags/") {
		return "it fetches to elsewhere than refs/remotes/ or refs/tags/"
	}
	return ""
}

func isPattern(ref string) bool {
	return strings.Count(ref, "*") <= 1 && isBranch(strings.Replace(ref, "*", "x", 1))
}

// address takes over what is fetched from, or pushed to, by the protocols that start nothing on this machine,
// and paths that the run was shown.
func address(_ *merger, c *Context, value string) string {
	const odd = "pccrun does not save this kind of address"
	switch {
	case value == "":
		return odd
	case value[0] == '-':
		return "its value could be taken for an option"
	case strings.Contains(value, "::"):
		return "its value names a program that fetches (NAME::ADDRESS)"
	}
	if scheme, rest, ok := strings.Cut(value, "://"); ok {
		switch strings.ToLower(scheme) {
		case "https", "http", "ssh", "git":
			host, _, _ := strings.Cut(rest, "/")
			if !isHost(host) {
				return odd
			}
			return ""
		case "file":
			if strings.Contains(rest, "%") || !strings.HasPrefix(rest, "/") {
				return odd
			}
			return local(c, rest)
		}
		return "its value is an address of another kind than https, http, ssh, git or a path"
	}
	if host, path, ok := strings.Cut(value, ":"); ok && !strings.Contains(host, "/") {
		if !isHost(host) || path == "" || path[0] == '-' {
			return odd
		}
		return ""
	}
	return local(c, value)
}

// isHost reports whether a part of an address names a host and nothing else, with a user and a port as it may be.
func isHost(host string) bool {
	user := ""
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		user, host = host[:i], host[i+1:]
		if user == "" || user[0] == '-' || strings.Trim(user, letters+"._-+~%:=") != "" { // ssh may hand it to a shell: %r of ssh_config(5)
			return false
		}
	}
	return host != "" && host[0] != '-' && strings.Trim(host, letters+"._-[]:") == ""
}

func local(c *Context, path string) string {
	if strings.Contains("/"+path+"/", "/.git/") || vcs.InFan(path) {
		return "its value is a path in a repository"
	}
	if c.Shown == nil || !c.Shown(path) {
		return "its value is a path that this run did not show"
	}
	return ""
}
