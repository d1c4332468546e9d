package namespaces

import "github.com/pccrun/pccrun/profiles"

// A ToolQuery says where programs are looked for.
type ToolQuery struct {
	Path      string              // the PATH of the caller
	Home      string              // absolute, clean
	Workspace string              // absolute, clean, without symbolic links
	Env       func(string) string // the caller's other variables: GOPATH, CARGO_HOME, NVM_DIR, …; nil for none
}

// A Tool is a file or directory that programs of PATH need, to be shown
// read-only. Only such as lie below the home, or in a place that a closed
// policy does not show anyway, need a rule of their own; all are listed.
type Tool struct {
	Path string // absolute and clean; exists, and is not a symbolic link
	Why  string // e.g. "PATH", "where ~/.local/bin/claude leads", "nvm"
}

// A Cache is a directory that tools fill, with the access that keeps them
// working and what they leave harmless.
type Cache struct {
	Path   string
	Access profiles.Access // Read for what only grows by download, Private for the rest
	Env    string          // the variable that moves it: set to Path inside, if it was found by it
	Why    string
}

// Tools is what the programs of PATH need.
type Tools struct {
	Show   []Tool
	Caches []Cache
}
