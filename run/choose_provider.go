package run

import (
	"cmp"
	"errors"
	"os"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// providerVariable names the provider where no flag does.
const providerVariable = "PARALLEL_CC_SANDBOX_PROVIDER"

// A choice is a provider by its name, and what chose it.
type choice struct {
	providers.Kind
	by   string // "--provider", the name of a variable, a file, "default"
	auto bool
}

// choose returns the provider that the request or its environment names, this machine
// where neither does.
func choose(req *profiles.Request) (choice, error) {
	c := choice{by: "default"}
	name := providers.Native
	switch value := req.Host.Getenv(providerVariable); {
	case req.Provider != "":
		name, c.by = req.Provider, "--provider"
	case value != "":
		name, c.by = value, providerVariable
	default:
		file, by, err := profiles.DefaultProvider(&req.Host)
		if err != nil {
			return c, err
		}
		if file != "" {
			name, c.by = file, by
		}
	}
	if name == providers.Auto {
		name, c.auto = providers.Native, true
	}
	if name == providers.Native { // which no launch looks up
		c.Name = name
		return c, nil
	}
	kind, err := providers.KindOf(name)
	c.Kind = kind
	var unusable *providers.UnusableError
	if errors.As(err, &unusable) && c.by != "--provider" {
		unusable.Cause += ", as " + c.by + " names it"
	}
	return c, err
}

// Chosen says which provider a run of this request would take, and what chooses it.
func Chosen(req *profiles.Request) (name, by string, err error) {
	c, err := choose(req)
	if name = c.Name; c.auto {
		name = providers.Auto
	}
	return name, c.by, err
}

// misplaced names a flag that speaks of another place than the one that is chosen, and where it means something.
func misplaced(req *profiles.Request, c choice) (text, hint string) {
	for _, f := range [...]struct{ name, value, of string }{
		{"--runtime", req.Runtime, "docker"}, {"--docker-network", req.DockerNetwork, "docker"},
		{"--docker-image", req.DockerImage, "docker"}, {"--e2b-template", req.E2BTemplate, "e2b"}, {"--daytona-target", req.Target, "daytona"},
	} {
		if f.value != "" && c.Name != f.of {
			return "flag " + f.name + ": the provider is " + c.Name, "--provider " + f.of
		}
	}
	for _, f := range [...]struct{ name, value, other string }{
		{"--image", req.Image, cmp.Or(req.DockerImage, req.E2BTemplate)}, {"--region", req.Region, req.Target}, {"--size", req.Size, ""}, {"--keep", req.Keep, ""},
	} {
		switch {
		case f.value == "":
		case f.other != "" && f.other != f.value:
			return "flag " + f.name + ": given twice, as " + f.value + " and " + f.other, ""
		case f.name == "--image" && c.Name == "docker", c.Cloud:
		case f.name == "--size":
			return "flag --size: the provider is " + c.Name + ", which makes no machine for a run", "--cpus and --memory limit a run anywhere"
		case f.name == "--image":
			return "flag --image: the provider is " + c.Name + ", which has the programs of this machine", "--provider docker"
		case f.name == "--region":
			return "flag --region: the provider is " + c.Name + ", which is this machine", "--provider daytona"
		default:
			return "flag --keep: the provider is " + c.Name + ", which has no sandbox to be kept", "--provider e2b"
		}
	}
	return "", ""
}

// build makes a provider that is not this machine itself. What a key is missing for, or
// nobody has built, is an error that says so.
func (p *Program) build(k providers.Kind, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	getenv := req.Host.Getenv
	if p.Provider == nil {
		return nil, k.NotBuilt(getenv)
	}
	provider, err := p.Provider(k.Name, req, host)
	switch {
	case err != nil:
		return nil, err
	case provider == nil:
		return nil, k.NotBuilt(getenv)
	}
	if keys := k.MissingKeys(getenv); keys != "" {
		return nil, &providers.UnusableError{Provider: k.Name, Cause: "not set up: it needs " + keys, Advice: "set it, or --provider native runs on this machine"}
	}
	return provider, nil
}

// isMissing reports whether an error says that a required guarantee would not be kept.
func isMissing(err error) bool {
	var one *providers.MissingError
	return errors.As(err, &one)
}

// launcherFile is the launcher that the user started, which a provider takes inside.
func launcherFile() string {
	if path := os.Getenv("PCCRUN_LAUNCHER"); path != "" {
		return path
	}
	path, _ := os.Executable() // where it has no name, a provider that needs it says so
	return path
}
