package rules

import (
	_ "embed"
	"strings"
)

//go:generate go test -run TestSuffixesAreTheList -update .

// suffixes holds the rules of the public suffix list, sorted, one a line, each
// ended by a newline. (golang.org/x/net/publicsuffix links net/http.)
//
//go:embed suffixes.txt
var suffixes string

// strangersBelow says whether anybody can have a name below name: it is a
// public suffix, or all that lies below it is. Names that own only some public
// suffixes, as amazonaws.com does, do not count.
func strangersBelow(name string) bool {
	return isPublicSuffix(name) || onList("*."+name)
}

// isPublicSuffix is the algorithm of publicsuffix.org, over ICANN's suffixes
// and those that companies put on the list, such as github.io. A top-level
// name that is not on the list is one.
func isPublicSuffix(name string) bool {
	_, parent, below := strings.Cut(name, ".")
	switch {
	case !below:
		return true
	case onList("!" + name):
		return false
	}
	return onList(name) || onList("*."+parent)
}

// onList looks a line up by bisection.
func onList(line string) bool {
	lo, hi := 0, len(suffixes)
	for lo < hi {
		start := lo + strings.LastIndexByte(suffixes[lo:(lo+hi)/2], '\n') + 1
		end := start + strings.IndexByte(suffixes[start:], '\n')
		switch c := strings.Compare(line, suffixes[start:end]); {
		case c == 0:
			return true
		case c < 0:
			hi = start
		default:
			lo = end + 1
		}
	}
	return false
}

// ownTop reports whether a name lies below no top-level name of the internet's, so
// that only a network of the user's own has it, at a private address. "example" is
// nobody's (RFC 2606).
func ownTop(name string) bool {
	top := name[strings.LastIndexByte(name, '.')+1:]
	return top != "example" && !onList(top)
}
