package egress

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/netproxy/secrets"
	"github.com/pccrun/pccrun/profiles"
)

// secret reads the value of an injected variable and makes its placeholder.
func (p *Plan) secret(inject profiles.Injection, host *Host) (wire.Secret, error) {
	value, err := host.Secrets.value(&inject, p.policy, host)
	if err != nil {
		return wire.Secret{}, err
	}
	key, err := placeholderKey(host.StateDir, p.policy.Workspace)
	if err != nil {
		return wire.Secret{}, err
	}
	placeholder, err := secrets.Placeholder(key, inject.Env+" "+strings.Join(inject.Hosts, " "), value)
	if err != nil {
		return wire.Secret{}, valueError{fmt.Errorf("its value %w", err)}
	}
	return wire.Secret{Placeholder: placeholder, Value: value, Name: inject.Env}, nil
}

// secretHosts returns the connections that a secret goes out on, and with which requests: by TLS, and
// only to hosts that the policy allows anyway.
func (p *Plan) secretHosts(inject profiles.Injection) (*rules.Set, error) {
	var list []rules.Rule
	for _, text := range inject.Hosts {
		name := text
		if inject.Repository != "" { // whose host has no case
			text = strings.ToLower(text)
		}
		rest := strings.TrimSuffix(text[strings.LastIndexByte(text, ']')+1:], ":") // after an IPv6 address
		if !strings.Contains(text, "://") && !strings.ContainsAny(rest, ": /") {
			text = "https://" + text // port 443 alone
		}
		rule, err := rules.Parse(text)
		if err == nil && (strings.HasPrefix(name, "@") || rule.Inspects() && !strings.Contains(text, "https://")) {
			err = fmt.Errorf("%q: want the name of a host, or https://HOST/PATH", name)
		}
		if err != nil {
			return nil, &profiles.Error{Origin: inject.Origin, Cause: fmt.Sprintf("inject %s: %v", inject.Env, err)}
		}
		if cause, hint := noWay(&p.policy.Network, p.Rules, name); cause != "" {
			return nil, &profiles.Error{Origin: inject.Origin, Cause: "inject " + inject.Env + ": " + cause, Hint: hint}
		}
		list = append(list, rule)
	}
	return rules.New(list...)
}

// placeholderKey returns the key that this user's placeholders are made with,
// and makes it where there is none.
func placeholderKey(dir, workspace string) ([]byte, error) {
	const name, size = "placeholder.key", 32
	key := make([]byte, size)
	if dir == "" {
		_, err := rand.Read(key)
		return key, err
	}
	root, err := state.Open(dir, workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for range 2 {
		kept, err := state.ReadFile(root, name, size)
		switch {
		case err == nil && len(kept) == size:
			return kept, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		if err := state.WriteFile(root, name, key, state.Durable); err != nil {
			return nil, err
		}
	}
	return key, nil
}
