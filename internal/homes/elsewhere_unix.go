//go:build linux || darwin

package homes

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
)

// maxElsewhere bounds what goes to another machine, all files together.
const maxElsewhere = 4 << 20

// FilesElsewhere returns what a home on another machine begins with: [Files], without any refresh
// token. A login of which nobody can say where it has one stays here.
func FilesElsewhere(p *profiles.Policy) (files map[string]string, notes []string, err error) {
	files, notes = Files(p)
	var tokens []string
	for i := range p.Seeds {
		s := &p.Seeds[i]
		text, is := files[s.Path]
		if !is {
			continue
		}
		blank, found, err := blanked(s, text)
		switch {
		case err == nil:
			files[s.Path], tokens = blank, append(tokens, found...)
		case s.Mode == profiles.Login || slices.Contains([]string{".json", ".jsonc", ".toml"}, filepath.Ext(s.Path)):
			delete(files, s.Path)
			notes = append(notes, s.Path+" is not copied to the provider: a refresh token in it could not be found: "+err.Error())
		}
	}
	size := 0
	for i := range p.Seeds {
		path := p.Seeds[i].Path
		text, is := files[path]
		if slices.ContainsFunc(tokens, func(token string) bool { return strings.Contains(text, token) }) {
			delete(files, path)
			notes = append(notes, path+" is not copied to the provider: it repeats a refresh token")
		} else if is && p.Seeds[i].Mode == profiles.Login {
			notes = append(notes, path+" is copied to the provider, without its refresh token; --no-login prevents it")
		}
		size += len(files[path])
	}
	if size > maxElsewhere {
		return nil, nil, hint.Errorf("--home private copies none of them", "the seeds of the home have %s, and at most %s is copied to a provider",
			messages.SizeText(int64(size)), messages.SizeText(maxElsewhere))
	}
	return files, notes, nil
}

// blanked returns a file without its refresh tokens, and them.
func blanked(s *profiles.Seed, text string) (blank string, tokens []string, err error) {
	if strings.TrimSpace(text) == "" {
		return text, nil, nil
	}
	var v any = map[string]any{}
	if err := decode(s.Path, []byte(text), &v); err != nil {
		return "", nil, err
	}
	switch v.(type) {
	case map[string]any, []any:
	default:
		return "", nil, errors.New("it has no names")
	}
	blankIn(v, s.Mode == profiles.Login, &tokens)
	out, err := format(s.Path, v)
	return string(out), tokens, err
}

// blankIn empties what is called a refresh token, at any depth. In a login "refresh" alone is one.
func blankIn(v any, login bool, tokens *[]string) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			blankIn(one, login, tokens)
		}
	case []map[string]any: // as TOML has lists of tables
		for _, one := range v {
			blankIn(one, login, tokens)
		}
	case map[string]any:
		for name, one := range v {
			plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
			switch one.(type) {
			case nil, bool, json.Number, int64, float64:
				continue
			}
			if strings.HasSuffix(plain, "refreshtoken") || login && plain == "refresh" {
				*tokens = append(*tokens, texts(one)...)
				v[name] = ""
				continue
			}
			blankIn(one, login, tokens)
		}
	}
}

// texts are the strings in a value that are long enough for a token.
func texts(v any) (list []string) {
	switch v := v.(type) {
	case string:
		if len(v) >= 8 {
			list = append(list, v)
		}
	case []any:
		for _, one := range v {
			list = append(list, texts(one)...)
		}
	case map[string]any:
		for _, one := range v {
			list = append(list, texts(one)...)
		}
	}
	return list
}
