// Package release holds the tests of what make release writes: each package is installed, runs a command, and is removed.
package release
