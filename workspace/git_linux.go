package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitconfig"
	"github.com/pccrun/pccrun/workspace/vcs"
)

const (
	// maxConfigs bounds the files of configuration that are read, and
	// maxConfigBytes the bytes of all.
	maxConfigs     = 4096
	maxConfigBytes = 16 << 20
	// maxWorktrees bounds the working trees elsewhere whose .git files are shown.
	maxWorktrees = 256
	// maxInclude is how deep git follows includes (MAX_INCLUDE_DEPTH in config.c).
	maxInclude = 10
	// maxBlobs bounds the bytes that are compared with what git's indexes
	// record: what lies beyond is not tracked.
	maxBlobs = 64 << 20
)

// A repo is a .git entry and where it leads. All paths are absolute and
// without links.
type repo struct {
	worktree string // the directory that the entry stands in
	gitDir   string
	common   string // the repository's own directory; gitDir but for a linked worktree
}

// gitEntry is for whatever is named .git in the directory dir.
func (s *scan) gitEntry(dir, path string, kind Kind) error {
	rule := profiles.ProtectRule{Pattern: ".git"}
	t, err := s.follow(dir, ".git")
	if err != nil {
		return err
	}
	s.pinLinks(t, rule)
	if kind == File || kind == Special || t.found && t.end.Kind == File {
		// Even one that points nowhere: it could be made to.
		if err := s.pin(t.end.Path, rule); err != nil {
			return err
		}
	}
	if t.found && t.end.Kind == File {
		b, err := s.readFile(t.end.Path, vcs.MaxGitFile)
		if errors.Is(err, ErrTooMuch) {
			s.note("%s: %v: git refuses it too", path, err)
		}
		if kind == File && err == nil && len(b) == 0 {
			s.private(path) // uv locks one in each of its caches, so that git takes nothing of it
		}
		target, perr := vcs.ParseGitFile(b)
		if err != nil || perr != nil {
			return nil // git refuses it; it cannot be changed
		}
		// A relative path starts where .git stands, not where it leads.
		if t, err = s.follow(dir, target); err != nil {
			return err
		}
		s.pinLinks(t, rule)
		if kind == File && t.found && vcs.OfSubmodule(t.end.Path) {
			s.private(path)
		}
	}
	if !t.found && inside(s.root, t.end.Path) && !vcs.OfSubmodule(t.end.Path) && !ofWorktree(t.end.Path) {
		s.vacant[t.end.Path] = true // the directory around is the working tree of what comes there
	}
	if !t.found || t.end.Kind != Dir {
		return nil
	}
	common, err := s.commonDir(t.end.Path)
	if err != nil {
		return err
	}
	r := repo{worktree: dir, gitDir: t.end.Path, common: common}
	if _, in := beneath.Path(s.root, r.gitDir); in {
		s.addGitDir(r.gitDir)
	} else if dir == s.root && !s.q.Aside {
		if err := s.outside(r, path); err != nil {
			return err
		}
	} else {
		s.otherTrees = append(s.otherTrees, dir)
		return nil
	}
	s.repos = append(s.repos, r)
	return nil
}

// commonDir returns the directory that a git directory shares with other
// worktrees: itself, unless a file says another.
func (s *scan) commonDir(gitDir string) (string, error) {
	b, err := s.readFile(filepath.Join(gitDir, "commondir"), vcs.MaxGitFile)
	if err != nil {
		return gitDir, nil
	}
	t, err := s.follow(gitDir, vcs.ParsePathFile(b))
	if err != nil {
		return "", err
	}
	if !t.found && inside(s.root, t.end.Path) {
		s.vacant[t.end.Path] = true
	}
	if !t.found || t.end.Kind != Dir {
		return gitDir, nil
	}
	return t.end.Path, nil
}

// plainGits returns, relative to the root, the directories of git that the walk has not
// known for such.
func (s *scan) plainGits() (list []string) {
	for _, dir := range s.gitDirs {
		if rel, in := beneath.Path(s.root, dir); in && !s.walked[dir] {
			list = append(list, rel)
		}
	}
	return list
}

// sharable reports whether git takes a directory for what worktrees share: it asks for
// no HEAD there, so that the walk may not know it.
func (s *scan) sharable(path string) bool {
	_, _, objects := s.node(path + "/objects")
	_, _, refs := s.node(path + "/refs")
	return objects && refs
}

func (s *scan) addGitDir(path string) {
	if !s.isGitDir[path] {
		s.isGitDir[path] = true
		s.gitDirs = append(s.gitDirs, path)
	}
}

// outside is for a root whose .git file leads out of the workspace. Such a
// file can be forged by whoever wrote the workspace; the place that it names
// is trusted if it is a repository of this user that points back.
func (s *scan) outside(r repo, pointer string) error {
	refuse := func(why string) error {
		s.note("%s links to %s, which %s, and is not shown", pointer, r.gitDir, why)
		return nil
	}
	for _, dir := range []string{r.gitDir, r.common} {
		if _, above := beneath.Path(dir, s.root); above {
			return refuse("contains the workspace")
		}
	}
	_, st, _ := s.node(r.common)
	if _, root, _ := s.node(s.root); int(st.Uid) != os.Geteuid() && st.Uid != root.Uid {
		return refuse("belongs to somebody else")
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, _, ok := s.node(filepath.Join(r.common, name)); !ok {
			return refuse("is no repository")
		}
	}
	for _, dir := range []string{r.gitDir, r.common + "/objects", r.common + "/refs", r.common + "/logs"} {
		// What root lends to be written to is lent as its own owner's.
		if _, part, ok := s.node(dir); ok && os.Geteuid() == 0 && part.Uid != st.Uid {
			return refuse("belongs in part to somebody else")
		}
	}
	if ok, err := s.pointsBack(r, pointer); err != nil || !ok {
		switch access := s.q.access(r.gitDir); {
		case access < profiles.Read:
			s.note("%s links to %s, which does not point back, and is not shown: if it is this directory's, --write %[2]s shows it", pointer, r.gitDir)
		case access == profiles.Read:
			s.note("%s links to %s, which does not point back, and stays read-only: if it is this directory's, --write %[2]s lets git write", pointer, r.gitDir)
		}
		return err
	}
	c := Common{Path: r.common, GitDir: r.gitDir, Write: []string{r.gitDir}}
	if r.common != r.gitDir {
		if _, ok := beneath.Path(r.common, r.gitDir); !ok {
			return refuse("is not part of the repository that it names")
		}
		if _, _, ok := s.node(r.common + "/logs"); !ok && s.q.Launch && os.Geteuid() == int(st.Uid) {
			// git makes it at the first commit in a worktree of a bare clone. What fails here fails there.
			_ = unix.Mkdir(r.common+"/logs", 0o777)
		}
		for _, name := range []string{"objects", "refs", "logs"} {
			if n, _, ok := s.node(filepath.Join(r.common, name)); ok && n.Kind == Dir {
				c.Write = append(c.Write, n.Path)
			}
		}
	}
	if b, err := s.readFile(filepath.Join(r.common, "config"), vcs.MaxConfig); err == nil {
		c.format, c.sure = vcs.HashOf(b)
	} else {
		c.sure = beneath.Gone(err)
	}
	s.found.Common = append(s.found.Common, c)
	s.ownGit = r.gitDir
	s.addGitDir(r.gitDir)
	s.addGitDir(r.common)
	if slices.ContainsFunc(s.q.Trees, func(tree string) bool { return inside(tree, r.gitDir) }) {
		return nil
	}
	// No look goes through what lies outside else: submodules stay as they are, and
	// none comes.
	modules := filepath.Join(r.gitDir, "modules")
	if _, _, ok := s.node(modules); !ok {
		s.vacant[modules] = true
		return nil
	}
	return s.pin(modules, profiles.ProtectRule{Pattern: ".git/modules outside of the workspace"})
}

func (q *Query) access(path string) profiles.Access {
	if q.Access == nil {
		return profiles.Hide
	}
	return q.Access(path)
}

// pointsBack reports whether the git directory of a linked worktree or of a
// submodule names the workspace as its own: by the file gitdir, or core.worktree.
func (s *scan) pointsBack(r repo, pointer string) (bool, error) {
	if b, err := s.readFile(filepath.Join(r.gitDir, "gitdir"), vcs.MaxGitFile); err == nil && r.common != r.gitDir {
		t, err := s.follow(r.gitDir, vcs.ParsePathFile(b))
		return t.found && t.end.Path == pointer, err
	}
	all, err := s.config(filepath.Join(r.gitDir, "config"))
	for _, tree := range vcs.WorkTrees(all, err) {
		t, err := s.follow(r.gitDir, tree)
		return t.found && t.end.Path == s.root, err
	}
	return false, err
}

// repositories pins what belongs to each git directory, and what its
// configuration, and the user's, name in the workspace.
func (s *scan) repositories() error {
	worktrees := map[string][]string{} // by common directory
	var all []string
	for _, r := range s.repos {
		worktrees[r.common] = append(worktrees[r.common], r.worktree)
		if r.gitDir != r.common {
			worktrees[r.gitDir] = append(worktrees[r.gitDir], r.worktree)
		}
		all = append(all, r.worktree)
	}
	for i := 0; i < len(s.gitDirs); i++ { // those grow
		dir := s.gitDirs[i]
		common, err := s.commonDir(dir)
		if err != nil {
			return err
		}
		if _, in := beneath.Path(s.root, common); in && s.sharable(common) {
			s.addGitDir(common)
		}
		if err := s.pinGitDir(dir); err != nil {
			return err
		}
		if err := s.treeElsewhere(dir); err != nil {
			return err
		}
		bases := worktrees[dir]
		if len(bases) == 0 {
			bases = []string{dir} // bare, or what a worktree has for itself
			all = append(all, dir)
		}
		for _, name := range []string{"config", "config.worktree"} {
			if err := s.configFile(filepath.Join(dir, name), bases, reading{}); err != nil {
				return err
			}
		}
	}
	around, err := s.above()
	if err != nil {
		return err
	}
	if s.q.Home == "" {
		return nil
	}
	if len(all) == 0 {
		all = []string{s.root} // what is no repository the command can make one
	}
	all = append(all, around...)
	// Where git comes from elsewhere than from the distribution, so does what all use.
	files := []string{
		"/etc/gitconfig", "/usr/local/etc/gitconfig", "/home/linuxbrew/.linuxbrew/etc/gitconfig",
		filepath.Join(cmp.Or(s.q.XDG, s.q.Home+"/.config"), "git/config"), filepath.Join(s.q.Home, ".gitconfig"),
	}
	for _, path := range files {
		if err := s.configFile(path, all, reading{of: ofUser}); err != nil {
			return err
		}
	}
	return s.environment(all)
}

// environment pins what the variables of the user's own git name in the workspace: files
// of configuration themselves, if they are in it, and what all of that names.
func (s *scan) environment(bases []string) error {
	for i := range s.q.Git {
		v := &s.q.Git[i]
		var err error
		if v.Use() == vcs.UseInclude {
			rule := profiles.ProtectRule{Pattern: v.Name() + " in $" + v.Variable}
			err = s.each(bases, s.expand(v.Value), func(base, value string) error {
				if err := s.leadsTo(base, value, rule); err != nil {
					return err
				}
				return s.configFile(filepath.Join(base, value), bases, reading{of: ofUser, depth: 1})
			})
		} else {
			err = s.settings([]vcs.Setting{v.Setting}, "$"+v.Variable, bases, reading{of: ofUser})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gitDirOf follows the .git entry of a working tree, and the path in it if it is a file; where git refuses that, nothing is
// found.
func (s *scan) gitDirOf(tree string) (trail, error) {
	t, err := s.follow(tree, ".git")
	if err != nil || !t.found || t.end.Kind != File {
		return t, err
	}
	target, err := vcs.GitFile(s.readFile, t.end.Path)
	if err != nil {
		return trail{}, nil
	}
	return s.follow(tree, target)
}

// above pins what the repositories around the workspace name in it: git runs that when the
// user works in one of them, of which the workspace is but a part. It returns their trees.
func (s *scan) above() (trees []string, err error) {
	for dir := s.root; dir != "/"; {
		dir = filepath.Dir(dir)
		t, err := s.gitDirOf(dir)
		if err != nil {
			return nil, err
		}
		if !t.found || t.end.Kind != Dir {
			continue
		}
		trees = append(trees, dir)
		common, err := s.commonDir(t.end.Path)
		if err != nil {
			return nil, err
		}
		for _, path := range []string{common + "/config", t.end.Path + "/config.worktree"} {
			if err := s.configFile(path, []string{dir}, reading{of: ofAround}); err != nil {
				return nil, err
			}
		}
		rule, _ := s.gitRule(".git/hooks")
		if err := s.programs(common+"/hooks", rule); err != nil {
			return nil, err
		}
	}
	return trees, nil
}

// treeElsewhere notes the .git file of the working tree that a directory of a repository
// here stands for, if that lies outside. What the workspace says may be forged: the file
// is one of the user's, and says nothing but what was known.
func (s *scan) treeElsewhere(gitDir string) error {
	if filepath.Base(filepath.Dir(gitDir)) != "worktrees" || !inside(s.root, gitDir) || s.q.Aside || len(s.found.Worktrees) == maxWorktrees {
		return nil
	}
	b, err := s.readFile(gitDir+"/gitdir", vcs.MaxGitFile)
	if err != nil {
		return nil // git knows of no working tree either
	}
	path := vcs.ParsePathFile(b)
	t, err := s.follow(gitDir, path)
	if err != nil || !t.found || t.proc || t.end.Kind != File || filepath.Base(t.end.Path) != ".git" || inside(s.root, t.end.Path) {
		return err
	}
	_, st, _ := s.node(t.end.Path)
	if _, root, _ := s.node(s.root); int(st.Uid) != os.Geteuid() && st.Uid != root.Uid {
		return nil
	}
	back, err := s.gitDirOf(filepath.Dir(t.end.Path))
	if err != nil || !back.found || back.end.Path != gitDir {
		return err
	}
	if filepath.Clean(path) != path || !filepath.IsAbs(path) {
		path = t.end.Path
	}
	s.found.Worktrees = append(s.found.Worktrees, path)
	return nil
}

// gitNames are what a git directory holds that decides what runs. The index,
// objects, refs, HEAD and logs are what a commit writes.
var gitNames = [...]string{"hooks", "config", "config.worktree", "commondir", "info/attributes"}

func (s *scan) pinGitDir(dir string) error {
	_, _, linked := s.node(filepath.Join(dir, "commondir"))
	writable := s.writable(dir)
	names := gitNames[:]
	if (dir == s.root || !inside(s.root, dir)) && writable { // which no pattern says of what lies in the root
		names = append(slices.Clone(names), s.gitOwn()...)
	}
	common := dir
	if linked {
		var err error
		if common, err = s.commonDir(dir); err != nil {
			return err
		}
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		r, _ := s.gitRule(".git/" + name)
		own := name == "config" || name == "config.worktree"
		t, err := s.follow(dir, name)
		if err != nil {
			return err
		}
		if !t.found && len(t.links) == 0 {
			switch {
			case !writable || linked && name != "config.worktree" && i < len(gitNames):
			case r.Review && name == "hooks": // the walk tells of what is new in it
			case r.Review && name != "commondir": // git would take another repository's configuration for this one's
				s.awaited[path] = r.Pattern
			case name == "config.worktree" && !s.splits(common):
				s.late[path] = common + "/config"
			default:
				s.vacant[path] = true
			}
			continue
		}
		// Of a directory that is shown read-only there is nothing to pin,
		// but for what lies in the workspace, and what the command has a copy of.
		n, _, ok := s.node(path)
		if !ok || !writable && !own {
			continue
		}
		if !writable {
			err = s.pin(n.Path, r)
		} else {
			err = s.guard(n, r)
		}
		if err != nil {
			return err
		}
		if own && (!r.Review || !writable) {
			s.private(path)
		}
		if name == "hooks" && !r.Review && !s.walked[dir] {
			if err := s.programs(path, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// splits reports whether a configuration may have git read config.worktree as well, in each
// working tree.
func (s *scan) splits(common string) bool {
	b, err := s.readFile(common+"/config", vcs.MaxConfig)
	return splits(b) || err != nil && !beneath.Gone(err)
}

// splits is right about all that says so, in whatever spelling.
func splits(config []byte) bool {
	return bytes.Contains(bytes.ToLower(config), []byte("worktreeconfig"))
}

// The files of which a run has a copy are bounded, and the bytes of all.
const (
	maxPrivate      = 1024
	maxPrivateTotal = 2 << 20
)

// private notes what stands in a file that is pinned, and of which the command is to have a
// copy that git can write.
func (s *scan) private(path string) {
	p, pinned := s.pins[path]
	if !pinned || p.Private {
		return
	}
	if p.Kind != File {
		s.note("%s is a link: git cannot change it inside", path)
		return
	}
	b, err := s.readAllowed(p.Node, gitconfig.MaxSize-1)
	switch {
	case errors.Is(err, ErrTooMuch):
		s.note("%s has %d KiB or more: git cannot change it inside; --review .git/config lets it", path, gitconfig.MaxSize>>10)
	case err != nil: // the command cannot read it either
	case s.copies == maxPrivate || s.copied+len(b) > maxPrivateTotal:
		if !s.crowded {
			s.note("%s and others: git cannot change them inside, because there are too many configurations", path)
		}
		s.crowded = true
	default:
		p.Private, p.Text = true, string(b)
		s.pins[path] = p
		s.copies, s.copied = s.copies+1, s.copied+len(b)
	}
}

// readAllowed reads what the command is to have a copy of, if the command itself may read it:
// one of root's has given up what root may, and this look has not.
func (s *scan) readAllowed(n Node, limit int64) ([]byte, error) {
	fd, err := s.openFile(n.Path)
	if err != nil {
		return nil, err
	}
	var st, root unix.Stat_t
	if err = cmp.Or(unix.Fstat(fd, &st), unix.Fstat(s.fd, &root)); err == nil {
		switch {
		case st.Dev != n.Dev || st.Ino != n.Ino:
			err = errUnsteady
		case os.Getuid() == 0 && granted(&st, &root)&0o4 == 0:
			err = unix.EACCES
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return beneath.ReadFile(fd, limit)
}

// gitOwn returns what else the rules protect in a repository's own directory, and other
// programs than git keep there. The walk finds it in the tree, and nowhere else.
func (s *scan) gitOwn() (names []string) {
	for i := range s.protect {
		p := &s.protect[i]
		name, own := strings.CutPrefix(filepath.Clean(p.Pattern), ".git/")
		if _, git := gitPattern(p.Pattern); own && !git && !p.Review && !strings.ContainsAny(name, "*?[") {
			names = append(names, name)
		}
	}
	return names
}

// writable reports whether the payload may write in a git directory.
func (s *scan) writable(dir string) bool {
	if _, in := beneath.Path(s.root, dir); in {
		return true
	}
	return dir == s.ownGit
}

// programs pins what the links in a directory of hooks lead to, and notes
// files with other names. The walk does that for the directories that it knows.
func (s *scan) programs(path string, r profiles.ProtectRule) error {
	rel, in := beneath.Path(s.root, path)
	var fd int
	var err error
	if in {
		fd, err = beneath.Open(s.fd, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	} else {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil // none, or a link whose end is looked at by itself
	}
	d := os.NewFile(uintptr(fd), path)
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch {
		case e.Type()&os.ModeSymlink != 0:
			if err := s.leadsTo(path, e.Name(), r); err != nil && (in || !errors.Is(err, errWhole)) {
				return err
			}
		case e.Type().IsRegular() && in:
			if _, st, ok := s.node(name); ok && st.Nlink > 1 && st.Dev == s.dev {
				s.linked[st.Ino] = struct{}{}
				s.pinnedAs[st.Ino] = origin{path: name, rule: r}
			}
		}
	}
	return nil
}

// configText returns what a file of configuration says, nil for one that cannot be read, as far
// as all of them together are no more than a launch may read.
func (s *scan) configText(path string) ([]byte, error) {
	if s.configs++; s.configs > maxConfigs {
		return nil, fmt.Errorf("read %s: file %d of git's configuration: %w", path, maxConfigs, ErrTooMuch)
	}
	b, err := s.readFile(path, vcs.MaxConfig)
	if errors.Is(err, ErrTooMuch) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err != nil {
		return nil, nil
	}
	if s.configBytes += len(b); s.configBytes > maxConfigBytes {
		return nil, fmt.Errorf("read %s: byte %d of git's configuration: %w", path, maxConfigBytes, ErrTooMuch)
	}
	return b, nil
}

// config returns the settings of one file, which follow has to find first. A
// file that git cannot parse is no obstacle: git stops at it too.
func (s *scan) config(path string) ([]vcs.Setting, error) {
	b, err := s.configText(path)
	if b == nil {
		return nil, err
	}
	all, err := vcs.ParseConfig(b)
	if err != nil {
		s.note("%s: %v: git stops at it too", path, err)
	}
	return all, nil
}

// A source says whose a configuration is.
type source uint8

const (
	ofRepository source = iota
	ofAround            // of a repository around the workspace, in which no tree has a part
	ofUser              // the user's own
	ofUserHere          // what that includes of the workspace
)

// A reading is how a configuration came to be read.
type reading struct {
	of    source
	depth int // of includes
}

// configFile pins what a file of configuration makes git run or read from within
// the workspace. Relative paths start at each of the bases, as git has it for
// hooks and commands; an include starts at the file itself.
func (s *scan) configFile(path string, bases []string, from reading) error {
	t, err := s.follow("/", path)
	if err != nil || !t.found || t.end.Kind != File {
		return err
	}
	all, err := s.config(t.end.Path)
	if err != nil {
		return err
	}
	if from.of == ofUser && inside(s.root, t.end.Path) {
		from.of = ofUserHere
	}
	return s.settings(all, path, bases, from)
}

// settings pins what the settings that stand in a place name.
func (s *scan) settings(all []vcs.Setting, path string, bases []string, from reading) error {
	for i := range all {
		c := &all[i]
		if file := c.Reads(); file != "" {
			s.noteUserFile(file, from)
			file = s.expand(file)
			if from.of == ofUser && c.Certifies() && filepath.IsAbs(file) && !slices.Contains(s.found.Certificates, file) {
				s.found.Certificates = append(s.found.Certificates, file)
			}
		}
		rule := profiles.ProtectRule{Pattern: c.Name() + " in " + path}
		var err error
		switch c.Use() {
		case vcs.UseInclude:
			if from.depth == maxInclude {
				return nil // git gives up here
			}
			file := s.expand(c.Value)
			if !filepath.IsAbs(file) {
				file = filepath.Dir(path) + "/" + file
			}
			if _, err = s.leadsToNamed("/", file, rule); err == nil {
				from := from
				from.depth++
				err = s.configFile(file, bases, from)
			}
		case vcs.UseHooks, vcs.UseDir:
			s.noteUserFile(c.Value, from)
			if value := s.expand(c.Value); c.Use() == vcs.UseHooks && !filepath.IsAbs(value) && value != "" && from.of != ofAround {
				s.hooks[value] = true
			}
			err = s.each(bases, s.expand(c.Value), func(base, value string) error {
				t, err := s.leadsToNamed(base, value, rule)
				if err != nil || !t.found {
					return err
				}
				s.noteExecuted(t.end.Path)
				return s.programs(t.end.Path, rule)
			})
		case vcs.UseCommand:
			for word, program := range vcs.Mentioned(c.Command()) {
				if program && from.of == ofUser {
					s.noteUserProgram(word)
				}
				err = s.each(bases, s.expand(word), func(base, value string) error {
					t, err := s.follow(base, value)
					if err != nil || t.found && t.end.Kind != File || !t.found && !program {
						return err
					}
					if relative := !filepath.IsAbs(value); relative && from.of != ofAround && (program || strings.Contains(value, "/")) {
						s.commands[value] = true
					}
					if t.found {
						s.noteExecuted(t.end.Path)
					}
					_, err = s.leadsToNamed(base, value, rule)
					return err
				})
				if err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leadsToNamed is [scan.leadsTo] for what a configuration names. A path that a flag opens by its name is not pinned. A
// profile's rule for review opens nothing: it may be there to list more.
func (s *scan) leadsToNamed(base, path string, r profiles.ProtectRule) (trail, error) {
	t, err := s.follow(base, path)
	if err != nil {
		return t, err
	}
	opened := func(o profiles.ProtectRule) bool {
		return o.Review && o.Origin.Source == "flag" && !strings.ContainsAny(o.Pattern, "*?[") && o.Matches(s.root, t.end.Path)
	}
	switch {
	case t.found && s.q.Aside && t.end.Path == s.root:
		s.note("%s may be written, and git runs what is in it: %s", t.end.Path, r.Pattern)
	case !t.found || !slices.ContainsFunc(s.protect, opened):
		return t, s.leadsTo(base, path, r)
	}
	s.pinLinks(t, r)
	return t, nil
}

// noteExecuted notes what a configuration has git execute, and is pinned for it.
func (s *scan) noteExecuted(path string) {
	if inside(s.root, path) {
		s.executed[path] = true
	}
}

// each calls look with a path and each base that it can start at.
func (s *scan) each(bases []string, path string, look func(base, path string) error) error {
	if path == "" {
		return nil
	}
	if filepath.IsAbs(path) {
		bases = []string{"/"}
	}
	for _, base := range bases {
		if err := look(base, path); err != nil {
			return err
		}
		// git before 2.45 makes a space of every blank within a value.
		if strings.Contains(path, "\t") {
			if err := look(base, strings.ReplaceAll(path, "\t", " ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// expand replaces a leading ~ by the user's home.
func (s *scan) expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && s.q.Home != "" {
		return s.q.Home + "/" + rest
	}
	return path
}

// The functions here note what the user's own configuration of git names outside of the
// workspace and git needs to do its work: without an included file a commit has no
// author, without the excludes it has everything. A file of the workspace has no
// say in it, though the user's includes it.

// noteUserFile notes a path that a file of the user's own gives. A relative one begins in
// a repository.
func (s *scan) noteUserFile(path string, from reading) {
	if path = s.expand(path); from.of == ofUser && filepath.IsAbs(path) && !inside(s.root, filepath.Clean(path)) {
		s.userFiles[filepath.Clean(path)] = true
	}
}

// noteUserProgram notes a program that the user's own configuration names by its path.
func (s *scan) noteUserProgram(word string) {
	path := s.expand(strings.NewReplacer("$HOME", "~", "${HOME}", "~").Replace(word))
	if filepath.IsAbs(path) && !inside(s.root, filepath.Clean(path)) && !slices.Contains(s.found.Programs, path) {
		s.found.Programs = append(s.found.Programs, path)
	}
}
