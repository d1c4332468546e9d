package task

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
)

// Bounds of a name that is made from a prompt.
const (
	nameWords = 3
	nameBytes = 28
)

// filler are words that say nothing of what a task is for.
var filler = strings.Fields("a an the this that of in on at to for from with and or is are be please can you my our its it i we me")

// slug makes the beginning of a name from a prompt: its first words that say something.
func slug(prompt string) string {
	isWord := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	var words []string
	length := 0
	for word := range strings.FieldsFuncSeq(strings.ToLower(prompt), func(r rune) bool { return !isWord(r) }) {
		if slices.Contains(filler, word) {
			continue
		}
		if length += len(word) + 1; len(words) == nameWords || length > nameBytes {
			break
		}
		words = append(words, word)
	}
	if words == nil {
		return "task"
	}
	return strings.Join(words, "-")
}

// NameFor makes a name for a prompt: its slug and two characters, so that the same prompt can be given again.
func NameFor(prompt string) string {
	const letters = "23456789bcdfghjkmnpqrstvwxz" // no vowel makes a word of them
	var two [2]byte
	_, _ = rand.Read(two[:]) // it cannot fail: crypto/rand
	for i := range two {
		two[i] = letters[int(two[i])%len(letters)]
	}
	return slug(prompt) + "-" + string(two[:])
}

var isName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$`)

// CheckName refuses a name that a branch or a directory cannot have: see git-check-ref-format(1).
func CheckName(name string) error {
	if !isName.MatchString(name) || strings.Contains(name, "..") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") {
		return hint.Errorf("e.g. --name fix-login", "name %q: want letters, digits, dots and dashes, at most 48", name)
	}
	return nil
}

// branchPrefix begins the branches of tasks where the user has no other.
const branchPrefix = "task/"

var isPrefix = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*[/_-])+$`)

// checkPrefix refuses what no branch can begin with, or is no beginning: a name would run into it.
func checkPrefix(prefix string) error {
	if !isPrefix.MatchString(prefix) || len(prefix) > 64 || strings.Contains(prefix, "..") || strings.Contains(prefix, "./") || strings.Contains(prefix, ".lock/") {
		return hint.Errorf("e.g. agents/", "branch.prefix %q: want letters, digits, dots and dashes, with a slash or a dash at its end", prefix)
	}
	return nil
}

// branchFor is the name of a task's branch. Where one stands that it would lie below, as `task`, dashes are in place of slashes.
func branchFor(prefix, name string, taken bool) string {
	if taken {
		prefix = strings.ReplaceAll(prefix, "/", "-")
	}
	return prefix + name
}

// keyOf names the directory of a task's state: tasks of two repositories may have one name.
func keyOf(name, common string) string {
	sum := sha256.Sum256([]byte(common))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// A place is where a work tree is made.
type place struct {
	parent string // made if need be
	name   string
}

func (p place) path() string { return filepath.Join(p.parent, p.name) }

// placesFor are where the work tree of a task may lie, the best first: in the user's own directory for it alone, if he has
// one; else beside the repository, unless that would be in the top of a home or of the file system, and among the user's data.
func placesFor(top, dir, home, name string) (places []place) {
	repo := filepath.Base(top)
	if dir != "" {
		return []place{{filepath.Join(dir, repo), name}}
	}
	if above := filepath.Dir(top); above != home && above != "/" && top != "/" {
		places = append(places, place{filepath.Join(above, repo+"-worktrees"), name})
	}
	return append(places, place{filepath.Join(home, ".local/share/pccrun/worktrees", repo), name})
}

// IsPhase reports whether a run's command line is that of a phase.
func IsPhase(argv []string) bool {
	return len(argv) > 2 && argv[1] == "run" && argv[2] == "-q" && slices.Contains(argv, "fd:3")
}
