package filesync

import "strings"

// alwaysExcluded are the names that never go up, in any case of letters: they hold keys.
// The templates that every hiding rule leaves alone go, and are looked through as all else.
var alwaysExcluded = parseIgnore(`
.env*
!.env*.example
!.env*.sample
!.env*.template
*.pem
*.key
*.p12
*.pfx
credentials.json
service-account.json
id_rsa
id_dsa
id_ecdsa
id_ecdsa_sk
id_ed25519
id_ed25519_sk
**/.aws/credentials
.gnupg
.netrc
.git-credentials
`)

// ownNames are those that pccrun uses for a while in a workspace.
var ownNames = parseIgnore(".pccrun-extract*\n.pccrun-apply-*\n")

// excludedAlways says why a path never goes up, "" if nothing keeps it.
func excludedAlways(rel string, isDir bool) string {
	if p := lastMatch(alwaysExcluded, strings.ToLower(rel), isDir); p != nil && !p.negated {
		return "may hold keys: " + p.text
	}
	if lastMatch(ownNames, rel, isDir) != nil {
		return "pccrun's own"
	}
	return ""
}
