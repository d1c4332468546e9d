package homes

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Tokens are those of a log-in in a file.
type Tokens struct {
	Access, Refresh, ID string
	Expires             time.Time // zero where the file does not say
	Scopes              []string
}

// A tokenFile says where a file has them.
type tokenFile struct {
	object, access, refresh, id, expires, scopes, renewed string

	kind, account string // members that say what the object is, and whose; "" where nothing does
}

// oauth is what the kind of an object is that holds tokens: an API key stands under the same name.
const oauth = "oauth"

// tokenFiles are the forms of the agents' files, by what `renew` of a seed says.
var tokenFiles = map[string]tokenFile{
	"claude": {object: "claudeAiOauth", access: "accessToken", refresh: "refreshToken", expires: "expiresAt", scopes: "scopes"},
	"codex":  {object: "tokens", access: "access_token", refresh: "refresh_token", id: "id_token", renewed: "last_refresh"},
	// Of opencode's entries that of OpenAI: the others name no account, or are not renewed.
	"opencode": {object: "openai", access: "access", refresh: "refresh", expires: "expires", kind: "type", account: "accountId"},
}

// maxToken bounds what counts as a token.
const maxToken = 16 << 10

// TokensOf returns the tokens in a file of a form; none if it has none.
func TokensOf(form string, text []byte) (t Tokens) {
	f, known := tokenFiles[form]
	file, err := parse("x.json", text)
	if !known || err != nil {
		return t
	}
	object, _ := file[f.object].(map[string]any)
	if f.kind != "" && object[f.kind] != oauth {
		return t
	}
	get := func(name string) string {
		value, _ := object[name].(string)
		if len(value) > maxToken || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return ""
		}
		return value
	}
	t.Access, t.Refresh = get(f.access), get(f.refresh)
	if f.id != "" {
		t.ID = get(f.id)
	}
	if list, is := object[f.scopes].([]any); is {
		t.Scopes = words(list)
	}
	return t
}

// hash tells one refresh token from another, and is none; "" for no token.
func (t Tokens) hash() string {
	if t.Refresh == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("refresh token\x00" + t.Refresh))
	return hex.EncodeToString(sum[:])
}

// Put returns the text of a file with other tokens, all else as it was.
func (t Tokens) Put(form string, text []byte, now time.Time) ([]byte, error) {
	f := tokenFiles[form]
	file, err := parse("x.json", text)
	if err != nil {
		return nil, err
	}
	object, is := file[f.object].(map[string]any)
	if !is {
		object = map[string]any{}
		file[f.object] = object
	}
	if stands := object[f.kind]; f.kind != "" && stands != oauth {
		if stands != nil {
			return nil, fmt.Errorf("the file has %v for %s, which is not a login", stands, f.object)
		}
		object[f.kind], object[f.account], object[f.expires] = oauth, OpenAIAccount(t.Access).Organisation, 0
	}
	object[f.access], object[f.refresh] = t.Access, t.Refresh
	if f.id != "" && t.ID != "" {
		object[f.id] = t.ID
	}
	if f.expires != "" && !t.Expires.IsZero() {
		object[f.expires] = t.Expires.UnixMilli()
	}
	if _, stands := object[f.scopes]; f.scopes != "" && !stands && len(t.Scopes) > 0 {
		object[f.scopes] = t.Scopes
	}
	if f.renewed != "" {
		file[f.renewed] = now.UTC().Format(time.RFC3339Nano)
	}
	return format("x.json", file)
}

// An Account is whose a log-in is.
type Account struct {
	User         string // what identifies the person, "" where nobody says
	Organisation string
	Name         string // for people
}

// Known reports whether it can be compared.
func (a Account) Known() bool { return a.User != "" && a.Organisation != "" }

// Same reports whether both are known, and one.
func (a Account) Same(b Account) bool {
	return a.Known() && a.User == b.User && a.Organisation == b.Organisation
}

// OpenAIAccount is what an id token of OpenAI's says. Its signature is not looked at: it comes
// from the endpoint itself, or from the user's own file.
func OpenAIAccount(token string) (a Account) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return a
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Email string `json:"email"`
		Sub   string `json:"sub"`
		Auth  struct {
			Account string `json:"chatgpt_account_id"`
			User    string `json:"chatgpt_user_id"`
		} `json:"https://api.openai.com/auth"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return a
	}
	if a = (Account{User: claims.Auth.User, Organisation: claims.Auth.Account, Name: claims.Email}); a.User == "" {
		a.User = claims.Sub
	}
	return a
}

// AnthropicAccount is what Claude Code's own file (~/.claude.json) says.
func AnthropicAccount(text []byte) (a Account) {
	var file struct {
		Account struct {
			User         string `json:"accountUuid"`
			Organisation string `json:"organizationUuid"`
			Email        string `json:"emailAddress"`
		} `json:"oauthAccount"`
	}
	if json.Unmarshal(text, &file) != nil {
		return a
	}
	return Account{User: file.Account.User, Organisation: file.Account.Organisation, Name: file.Account.Email}
}
