package gitconfig

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// shownSections are those of which a command is shown what the user has set: git help config, 2.51, and pagers that are
// set up there. In none is a secret, but for keys that [secretKey] names, and addresses with a password.
var shownSections = strings.Fields(`
	add advice alias am apply attr author blame branch bundle checkout clean clone color column commit commitgraph committer
	completion core delta diff difftool extensions feature fetch filter format fsck gc gpg grep guitool help include includeif index init
	interactive log ls-refs mailmap maintenance man merge mergetool notes pack pager protocol pull push rebase receive remote rerere revert
	safe sequence showbranch splitindex stash status submodule tag tar trailer transfer url versionsort web worktree
`)

// shownKeys are those of other sections.
var shownKeys = strings.Fields(`
	user.name user.email user.signingkey user.useconfigonly
	http.proxy http.sslcainfo http.sslcapath http.sslverify http.sslversion http.proxysslcainfo http.pinnedpubkey http.version
	http.postbuffer http.lowspeedlimit http.lowspeedtime http.followredirects http.useragent
	lfs.url lfs.concurrenttransfers lfs.fetchinclude lfs.fetchexclude lfs.locksverify
`)

// secretKey are parts of the names of keys that hold secrets, or name what asks for one.
var secretKey = strings.Fields("token secret passw passphrase credential apikey oauth askpass header cookie")

// signsIn reports whether a value has an address that says who signs in, of which over http the name alone may be a
// token, or what a request does that by.
func signsIn(value string) bool {
	value = strings.ToLower(value)
	for rest, found := value, true; found; {
		var scheme string
		scheme, rest, found = strings.Cut(rest, "://")
		host, _, _ := strings.Cut(rest, "/")
		if i := strings.IndexAny(host, " \t\"'"); i >= 0 {
			host = host[:i]
		}
		if user, _, found := strings.Cut(host, "@"); found && (strings.HasSuffix(scheme, "http") || strings.HasSuffix(scheme, "https") || strings.Contains(user, ":")) {
			return true
		}
	}
	return strings.Contains(value, "authorization:") || strings.Contains(value, "bearer ")
}

// Shown returns what of the user's own configuration holds no secret, by a closed list of keys: written anew, without what
// else the text says, and so that it may stand in another directory than dir. It is false for a text that versions of git
// could parse differently. The settings are those that are shown.
func Shown(text []byte, dir string) (shown []byte, settings []vcs.Setting, ok bool) {
	_, c, err := parse(text)
	if err != nil {
		return nil, nil, false
	}
	last := ""
	for _, s := range c.Settings {
		if !isShown(&s) {
			continue
		}
		if s.Use() == vcs.UseInclude && s.Value != "" && s.Value[0] != '/' && s.Value[0] != '~' {
			s.Value = dir + "/" + s.Value
		}
		if h := heading(keyOf(s)); h != last {
			shown, last = append(shown, h...), h
		}
		shown, settings = append(shown, "\t"+line(s.Key, valueOf(&s))...), append(settings, s)
	}
	again, err := vcs.ParseConfig(shown)
	return shown, settings, err == nil && slices.Equal(again, settings)
}

func isShown(s *vcs.Setting) bool {
	if s.Section == "credential" && s.Key == "helper" { // a program of the user's, or a script that takes it from a variable, which may be a placeholder
		program := strings.HasPrefix(s.Value, "/") || strings.HasPrefix(s.Value, "~/")
		return (program || strings.HasPrefix(s.Value, "!") && strings.Contains(s.Value, "password=$")) && !signsIn(s.Sub)
	}
	return (slices.Contains(shownSections, s.Section) || slices.Contains(shownKeys, s.Section+"."+s.Key)) &&
		!namesSecret(s.Key) && !signsIn(s.Sub) && !signsIn(s.Value)
}

func namesSecret(key string) bool {
	return slices.ContainsFunc(secretKey, func(part string) bool { return strings.Contains(key, part) })
}

// Secret reports whether a line of some configuration may have a secret in it: a word in it says so, or an address signs in.
func Secret(line string) bool { return namesSecret(strings.ToLower(line)) || signsIn(line) }
