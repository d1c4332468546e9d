package vcs

import "strings"

// MaxOriginal bounds a file that is looked into, or kept to be shown.
const MaxOriginal = 256 << 10

// inertKeys are the keys of git's configuration that make it run nothing,
// whatever their value: `section.key`, `section.*` for all keys of a section,
// each with or without a subsection. What is not among them counts as something
// that executes: git gets new keys with each version, and other programs keep
// keys of their own there.
const inertKeys = `
	core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase core.precomposeunicode
	core.symlinks core.autocrlf core.eol core.safecrlf core.sparsecheckout core.sparsecheckoutcone core.untrackedcache
	core.preloadindex core.fscache core.longpaths core.quotepath core.abbrev core.whitespace core.trustctime core.checkstat
	core.compression core.loosecompression core.bigfilethreshold core.commentchar core.commentstring core.sharedrepository
	core.protecthfs core.protectntfs core.multipackindex core.commitgraph core.splitindex core.fsync core.fsyncmethod
	extensions.noop extensions.preciousobjects extensions.partialclone extensions.objectformat extensions.compatobjectformat
	extensions.refstorage extensions.worktreeconfig extensions.relativeworktrees extensions.submodulepathconfig
	remote.url remote.pushurl remote.fetch remote.push remote.tagopt remote.prune remote.prunetags remote.mirror
	remote.promisor remote.partialclonefilter remote.skipdefaultupdate remote.skipfetchall remote.pushdefault remote.gh-resolved
	branch.remote branch.merge branch.rebase branch.description branch.pushremote branch.sort branch.autosetupmerge
	branch.autosetuprebase branch.vscode-merge-base branch.gh-merge-base branch.github-pr-owner-number
	submodule.url submodule.active submodule.branch submodule.ignore submodule.fetchrecursesubmodules submodule.recurse submodule.fetchjobs
	user.name user.email user.useconfigonly author.name author.email committer.name committer.email
	init.defaultbranch init.defaultobjectformat init.defaultrefformat
	pull.rebase pull.ff push.default push.autosetupremote push.followtags push.usebitmaps fetch.prune fetch.prunetags fetch.parallel
	fetch.writecommitgraph fetch.fsckobjects transfer.fsckobjects receive.fsckobjects
	merge.conflictstyle merge.ff merge.log merge.stat merge.renames merge.renamelimit merge.directoryrenames
	rebase.autosquash rebase.autostash rebase.updaterefs rebase.stat rerere.enabled rerere.autoupdate
	diff.algorithm diff.renames diff.renamelimit diff.colormoved diff.context diff.mnemonicprefix diff.noprefix diff.indentheuristic
	color.* column.* advice.* status.* stash.*
	log.abbrevcommit log.date log.decorate log.follow
	index.version index.threads index.skiphash feature.manyfiles feature.experimental pack.* gc.auto gc.autodetach gc.autopacklimit
	gc.pruneexpire gc.reflogexpire maintenance.auto maintenance.strategy tag.sort blame.coloring i18n.commitencoding i18n.logoutputencoding
	lfs.repositoryformatversion lfs.locksverify lfs.access
	index.sparse submodule.alternatelocation submodule.alternateerrorstrategy submodule.propagatebranches log.excludedecoration
	core.packedgitlimit core.packedgitwindowsize core.deltabasecachelimit core.configwritelocktimeoutms http.postbuffer http.lowspeedlimit http.lowspeedtime
	receive.denynonfastforwards receive.denydeletes receive.denycurrentbranch receive.denydeletecurrent receive.autogc receive.unpacklimit fetch.unpacklimit fetch.showforcedupdates
	uploadpack.allowfilter uploadpack.allowanysha1inwant uploadpack.allowtipsha1inwant uploadpack.allowreachablesha1inwant
	gc.reflogexpireunreachable gc.worktreepruneexpire gc.writecommitgraph gc.cruftpacks commitgraph.changedpaths commitgraph.generationversion
	blame.ignorerevsfile checkout.defaultremote checkout.guess worktree.guessremote worktree.userelativepaths
	push.recursesubmodules notes.rewriteref notes.displayref rebase.rebasemerges commit.verbose commit.status commit.cleanup diff.submodule am.keepcr am.threeway gui.gcwarning
`

// Inert reports whether git, and whoever else reads the setting, runs nothing
// for it. The place that core.worktree names is the caller's to judge.
func (s *Setting) Inert() bool {
	if s.Name() == "core.fsmonitor" && s.Value == "false" {
		return true // git before 2.36 takes it for a program of that name, which does nothing
	}
	switch s.Name() {
	case "commit.gpgsign", "tag.gpgsign", "push.gpgsign":
		return s.Value == "false" // as tests and agents have it in what they make: nothing signs
	}
	if s.Use() != UseNone {
		return false
	}
	name := s.Section + "." + s.Key
	if s.Places() {
		return true
	}
	if s.Section == "submodule" && s.Key == "update" {
		switch s.Value {
		case "checkout", "rebase", "merge", "none":
			return true
		}
		return false
	}
	if !isOneOf(name, inertKeys) && !isOneOf(s.Section+".*", inertKeys) {
		return false
	}
	// Git starts itself with the names of remotes: one that begins with a dash is an option
	// of fetch then (--upload-pack=PROGRAM), and one without an address is an address.
	if strings.HasPrefix(s.Sub, "-") || s.Section == "remote" && !harmless(s.Sub) {
		return false
	}
	switch s.Key {
	case "url", "pushurl", "remote", "pushremote", "pushdefault", "partialclone":
		return harmless(s.Value)
	case "fetch": // into nothing but what is a remote's
		_, to, writes := strings.Cut(s.Value, ":")
		return !writes || strings.HasPrefix(to, "refs/remotes/") || strings.HasPrefix(to, "refs/tags/")
	case "refstorage": // which may say where, too (FORMAT://PATH)
		return s.Value == "files" || s.Value == "reftable"
	}
	return true
}

// harmless reports whether git starts nothing from a place that it fetches from or
// pushes to, as far as its name tells. `ext::COMMAND` is a program, and other names
// before a double colon are programs' names; what begins with a dash may become
// somebody's option. A repository on the same machine runs its own hooks at a push:
// those that are looked at are inert, but in the directories of another nobody looks,
// and what is escaped in a file: URL (connect.c of git) may lead there.
func harmless(url string) bool {
	path := "/" + url
	if scheme, _, is := strings.Cut(url, "://"); is && !isOneOf(strings.ToLower(scheme), "https http ssh git file") {
		return false // git-remote-SCHEME is a program
	}
	return !strings.Contains(url, "::") && !strings.HasPrefix(url, "-") && !strings.Contains(path, "/.git/") && !InFan(path) &&
		!(strings.HasPrefix(url, "file:") && strings.Contains(url, "%"))
}

// Places reports whether a setting says where the working tree is.
func (s *Setting) Places() bool { return s.Section == "core" && s.Key == "worktree" && s.Sub == "" }

// WorkTrees returns where the working tree is by what [ParseConfig] returned.
func WorkTrees(all []Setting, _ error) (list []string) {
	for i := range all {
		if all[i].Places() {
			list = append(list, all[i].Value)
		}
	}
	return list
}

// isOneOf says whether a word is in a list, which is a text: each launch would pay for
// one that has to be made.
func isOneOf(word, list string) bool {
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}
