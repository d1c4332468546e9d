//go:build linux || darwin

package homes

import (
	"maps"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// A Server is one that a settings file of an agent's sends it to.
type Server struct{ File, URL string }

// Servers returns the model servers that the seeds of a policy name as their base URL, without those of providers that
// the file names as others than its own. They come from the host's files: an older home may have others.
func Servers(p *profiles.Policy) (list []Server) {
	for i := range p.Seeds {
		s := &p.Seeds[i]
		_, text, _ := look(p, s.Path, &stamp{})
		if s.Mode == profiles.Login || len(text) == 0 || whole(s) && !strings.Contains(strings.ToLower(string(text)), "url") {
			continue
		}
		object, _, err := picked(s, text, p.Workspace)
		if err != nil {
			continue
		}
		var chosen []string
		eachString(object, nil, func(key []string, value string) {
			if name := plainKey(key); name == "modelprovider" || name == "model" || name == "smallmodel" {
				provider, _, within := strings.Cut(value, "/")
				if within || name == "modelprovider" {
					chosen = append(chosen, provider)
				}
			}
		})
		eachString(object, nil, func(key []string, value string) {
			one := Server{s.Path, value}
			provider := len(key) > 2 && (key[0] == "model_providers" || key[0] == "provider")
			if strings.HasSuffix(plainKey(key), "baseurl") && (!provider || chosen == nil || slices.Contains(chosen, key[1])) && !slices.Contains(list, one) {
				list = append(list, one)
			}
		})
	}
	return list
}

// plainKey is the last name of a key, as each spelling has it: base_url, baseURL.
func plainKey(key []string) string {
	return strings.ReplaceAll(strings.ToLower(key[len(key)-1]), "_", "")
}

// eachString calls yield with each string in an object, by its key.
func eachString(v map[string]any, above []string, yield func(key []string, value string)) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		key := append(slices.Clip(above), name)
		switch one := v[name].(type) {
		case string:
			yield(key, one)
		case map[string]any:
			eachString(one, key, yield)
		}
	}
}
