package providers

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// The names that stand for no provider of their own.
const (
	Native = "native" // this machine, with nothing but this program
	Auto   = "auto"   // the first of those of this machine that keeps what the policy requires
)

// A Kind is a provider by its name, whether or not it is built.
type Kind struct {
	Name  string
	What  string // in a few words
	Cloud bool   // what is shown to a command leaves this machine

	// Keys are the variables without which it cannot be used, each list one way.
	Keys [][]string
}

// Known are all of them, in the order in which --provider auto and doctor take them.
func Known() []Kind {
	return []Kind{
		{Name: Native, What: "this machine"},
		{Name: "docker", What: "a container engine of this machine"},
		{Name: "e2b", What: "E2B sandboxes", Cloud: true, Keys: [][]string{{"E2B_API_KEY"}}},
		{Name: "daytona", What: "Daytona sandboxes", Cloud: true, Keys: [][]string{{"DAYTONA_API_KEY"}, {"DAYTONA_JWT_TOKEN", "DAYTONA_ORGANIZATION_ID"}}},
		{Name: "cloudflare", What: "Cloudflare sandboxes", Cloud: true, Keys: [][]string{{"CLOUDFLARE_SANDBOX_URL", "SANDBOX_API_KEY"}}},
		{Name: "modal", What: "Modal sandboxes", Cloud: true, Keys: [][]string{{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"}}},
		{Name: "sprites", What: "Sprites", Cloud: true, Keys: [][]string{{"SPRITES_TOKEN"}, {"SPRITE_TOKEN"}}},
		{Name: "vercel", What: "Vercel sandboxes", Cloud: true, Keys: [][]string{{"VERCEL_OIDC_TOKEN"}, {"VERCEL_TOKEN", "VERCEL_TEAM_ID", "VERCEL_PROJECT_ID"}}},
		{Name: "kubernetes", What: "pods of a cluster", Cloud: true},
	}
}

// Lacking are clouds that people ask for and nobody can use from here, and what each lacks.
func Lacking() []UnusableError {
	return []UnusableError{
		{Provider: "cloudrun", Cause: "Google Cloud Run has no API that makes a sandbox and executes in it: its sandboxes are made inside a container of one's own service"},
		{Provider: "replit", Cause: "Replit has no public API that makes a sandbox and executes in it"},
	}
}

// KindOf returns what a name stands for.
func KindOf(name string) (Kind, error) {
	list := Known()
	if i := slices.IndexFunc(list, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return list[i], nil
	}
	e := &UnusableError{Provider: name, Cause: "no such provider", Advice: suggest(name)}
	for _, lacks := range Lacking() {
		if lacks.Provider == name {
			e.Cause = lacks.Cause
		}
	}
	return Kind{}, e
}

// suggest is the hint for a name that is no provider's.
func suggest(name string) string {
	names := []string{Auto}
	for _, k := range Known() {
		names = append(names, k.Name)
	}
	hint := "it is one of " + strings.Join(names, ", ")
	if near := profiles.Nearest(name, names); near != "" {
		hint = "did you mean " + near + "? " + hint
	}
	return hint
}

// MissingKeys says which variables a provider lacks, "" for none.
func (k Kind) MissingKeys(getenv func(string) string) string {
	var ways []string
	for _, way := range k.Keys {
		lacks := slices.DeleteFunc(slices.Clone(way), func(name string) bool { return getenv(name) != "" })
		if len(lacks) == 0 {
			return ""
		}
		ways = append(ways, strings.Join(lacks, " and "))
	}
	return strings.Join(ways, ", or ")
}

// An UnusableError says that a provider cannot be used at all, for whatever policy.
type UnusableError struct {
	Provider string
	Cause    string
	Advice   string // what mends it
}

func (e *UnusableError) Error() string { return "provider " + e.Provider + ": " + e.Cause }

// Hint says what mends it.
func (e *UnusableError) Hint() string { return e.Advice }

// NotBuilt is the cause where a provider is known and no more.
const NotBuilt = "not built yet"

// NotBuilt says that a provider is known and not built; where its key is missing too,
// what that is.
func (k Kind) NotBuilt(getenv func(string) string) error {
	e := &UnusableError{Provider: k.Name, Cause: NotBuilt, Advice: "--provider native runs on this machine"}
	if keys := k.MissingKeys(getenv); keys != "" {
		e.Cause += ", and not set up: it needs " + keys
	}
	return e
}
