package filesync

import (
	"path"
	"slices"
	"strings"
)

// keyNames are the names that never go up, in any case of letters, as patterns of [path.Match]: they hold keys.
// One with a slash stands for the last names of a path.
var keyNames = []string{
	".env*", "*.pem", "*.key", "*.p12", "*.pfx", "credentials.json", "service-account.json",
	"id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk",
	".aws/credentials", ".gnupg", ".netrc", ".git-credentials",
}

// templateNames are those among them that hold no keys: they go, and are searched for secrets as all else.
var templateNames = []string{".env*.example", ".env*.sample", ".env*.template"}

// excludedAlways says why a path never goes up, "" if nothing keeps it.
func excludedAlways(rel string) string {
	name := strings.ToLower(path.Base(rel))
	matches := func(pattern string) bool {
		dir, last := path.Split(pattern)
		is, _ := path.Match(last, name)
		return is && strings.HasSuffix("/"+path.Dir(strings.ToLower(rel))+"/", "/"+dir)
	}
	if i := slices.IndexFunc(keyNames, matches); i >= 0 && !slices.ContainsFunc(templateNames, matches) {
		return "may hold keys: " + keyNames[i]
	}
	if isOwnName(rel) {
		return "pccrun's own"
	}
	return ""
}

// isOwnName reports whether pccrun uses a name for a while: in a workspace, or beside a directory that it makes.
func isOwnName(rel string) bool {
	name := path.Base(rel)
	return strings.HasPrefix(name, stageName) || strings.HasPrefix(name, ".pccrun-apply-")
}
