// Package login takes a log-in that a run has renewed, or made, over into the user's own file.
//
// It promises:
//   - what a run wrote proves no account: a refresh token goes back only after it was used, once,
//     at the provider's own endpoint, and what goes back are the tokens that this answered with,
//     into the object of the file that holds them, and nothing else of what the run wrote;
//   - by itself ([Renew]) only where the user's file still has the token that was copied, and the
//     endpoint names the same person and the same organisation as the user's own files do;
//   - another log-in, or a first one, only when somebody has said yes to the account
//     ([Login.Ask]);
//   - under the agent's own lock, by one rename, with the mode that the file has.
//
// It is no part of the launcher, which does not speak TLS.
package login

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/homes"
)

// A Login is one of an agent's, in a home and outside.
type Login struct {
	Form     string // see [homes.TokensOf]
	Endpoint string
	Path     string // the user's own file
	UserHome string

	Inside []byte                            // what the file in the home holds
	Keep   func(text []byte) error           // replaces that
	Copied func(homes.Tokens) (is, any bool) // see [homes.Home.Copied]

	// Ask is asked whether a log-in of an account is to be taken over that is not known to be the
	// user's; nil: it is not.
	Ask func(a homes.Account) bool

	Client *http.Client // that of package internal/outgoing/client
}

// Why a log-in stays where it is.
var (
	ErrSame     = errors.New("the login was not renewed inside")
	ErrNone     = errors.New("there is no login")
	ErrFirst    = errors.New("it was made inside")
	ErrOutside  = errors.New("your own login changed during the run")
	ErrUnknown  = errors.New("the service does not name its account")
	ErrAnother  = errors.New("it is of another account or organisation")
	ErrHeld     = errors.New("the agent on the host is renewing its login")
	ErrDeclined = errors.New("not copied")
)

// clients are the identifiers with which the agents themselves renew, as their programs have them.
var clients = map[string]string{"claude": "9d1c250a-e61b-44d9-88ed-5944d1962f5e", "codex": openAI, "opencode": openAI}

const openAI = "app_EMoamEEZ73f0CkXaXp7hrann"

// Patience is how long the endpoint may take: less than after which an agent takes a lock for
// one that was left.
const Patience = 8 * time.Second

// Renew takes the log-in over, and returns whose it is. Where it returns an error the user's file
// is as it was.
func (l *Login) Renew(ctx context.Context) (homes.Account, error) {
	inside := homes.TokensOf(l.Form, l.Inside)
	if inside.Refresh == "" {
		return homes.Account{}, ErrNone
	}
	same, known := l.Copied(inside)
	if same {
		return homes.Account{}, ErrSame
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return homes.Account{}, err
	}
	defer unlock()
	own, mode, err := l.own()
	if err != nil {
		return homes.Account{}, err
	}
	old := homes.TokensOf(l.Form, own)
	if l.Ask == nil {
		switch unchanged, _ := l.Copied(old); {
		case !known || old.Refresh == "":
			return homes.Account{}, ErrFirst
		case !unchanged:
			return homes.Account{}, ErrOutside
		case !l.account(own, old).Known():
			return homes.Account{}, ErrUnknown
		}
	}
	next, account, err := l.exchange(ctx, inside)
	if err != nil {
		return homes.Account{}, err
	}
	// The token inside is used up now: whatever comes, the run's agent gets the next one.
	text, err := next.Put(l.Form, l.Inside, time.Now())
	if err == nil {
		err = l.Keep(text)
	}
	if err != nil {
		return account, err
	}
	switch {
	case l.account(own, old).Same(account):
	case l.Ask != nil:
		if !l.Ask(account) {
			return account, ErrDeclined
		}
	case !account.Known():
		return account, ErrUnknown
	default:
		return account, ErrAnother
	}
	now, _, err := l.own()
	if err == nil && !bytes.Equal(now, own) {
		err = ErrOutside
	}
	if err == nil {
		text, err = next.Put(l.Form, own, time.Now())
	}
	if err == nil {
		err = replace(l.Path, text, mode)
	}
	return account, err
}

// account is whose the user's own log-in is, as the user's own files say.
func (l *Login) account(text []byte, t homes.Tokens) homes.Account {
	switch l.Form {
	case "codex":
		return homes.OpenAIAccount(t.ID)
	case "opencode": // it keeps no other token that names one
		return homes.OpenAIAccount(t.Access)
	}
	text, _ = os.ReadFile(filepath.Join(l.UserHome, ".claude.json"))
	return homes.AnthropicAccount(text)
}

// answer is what an endpoint says, by RFC 6749 section 5.1 and the providers' own members.
type answer struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	ID      string `json:"id_token"`
	Expires int64  `json:"expires_in"`
	Scope   string `json:"scope"`
	Account struct {
		User  string `json:"uuid"`
		Email string `json:"email_address"`
	} `json:"account"`
	Organisation struct {
		ID string `json:"uuid"`
	} `json:"organization"`
	Error any `json:"error"`
}

// exchange uses a refresh token.
func (l *Login) exchange(ctx context.Context, t homes.Tokens) (next homes.Tokens, a homes.Account, err error) {
	if l.Client == nil { // Go's own would believe the environment
		return next, a, errors.New("BUG: no client to renew it by")
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	body := map[string]string{"grant_type": "refresh_token", "refresh_token": t.Refresh, "client_id": clients[l.Form]}
	if len(t.Scopes) > 0 {
		body["scope"] = strings.Join(t.Scopes, " ")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return next, a, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Endpoint, bytes.NewReader(text))
	if err != nil {
		return next, a, err
	}
	request.Header.Set("Content-Type", "application/json")
	client := *l.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return next, a, fmt.Errorf("renew it at %s: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	var said answer
	text, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if response.StatusCode != http.StatusOK {
		return next, a, fmt.Errorf("renew it at %s: status %d", request.URL.Host, response.StatusCode)
	}
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	next = homes.Tokens{Access: said.Access, Refresh: said.Refresh, ID: said.ID, Scopes: strings.Fields(said.Scope)}
	if next.Refresh == "" {
		next.Refresh = t.Refresh // it goes on
	}
	if err != nil || next.Access == "" {
		return next, a, fmt.Errorf("renew it at %s: unexpected answer", request.URL.Host)
	}
	if said.Expires > 0 {
		next.Expires = time.Now().Add(time.Duration(min(said.Expires, 1<<31)) * time.Second)
	}
	if clients[l.Form] == openAI {
		return next, homes.OpenAIAccount(said.ID), nil
	}
	return next, homes.Account{User: said.Account.User, Organisation: said.Organisation.ID, Name: said.Account.Email}, nil
}

// own reads the user's file, through its links; nothing where there is none.
func (l *Login) own() (text []byte, mode os.FileMode, err error) {
	info, err := os.Stat(l.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0o600, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > 4<<20) {
		err = fmt.Errorf("%s: not a regular file of up to 4 MiB", l.Path)
	}
	if err != nil {
		return nil, 0, err
	}
	text, err = os.ReadFile(l.Path)
	return text, info.Mode().Perm(), err
}

// replace writes a file by one rename, where its links lead.
func replace(path string, text []byte, mode os.FileMode) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		real, err = path, os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(real), ".pccrun-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), real)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// stale is how old the lock of an agent is that was left: that of proper-lockfile, which Claude
// Code has.
const stale = 10 * time.Second

// lock takes the lock under which the agent outside renews: a directory beside Claude Code's own.
// Codex and opencode have none.
func (l *Login) lock(ctx context.Context) (unlock func(), err error) {
	if l.Form != "claude" {
		return func() {}, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(l.Path))
	if errors.Is(err, os.ErrNotExist) {
		return func() {}, nil // nobody is there to hold it
	}
	if err != nil {
		return nil, err
	}
	name := dir + ".lock"
	for range 50 {
		if err = os.Mkdir(name, 0o700); err == nil {
			return func() { _ = os.Remove(name) }, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if info, e := os.Lstat(name); e == nil && info.IsDir() && time.Since(info.ModTime()) > stale {
			_ = os.Remove(name)
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, ErrHeld
}
