//go:build linux

package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegistries(t *testing.T) {
	const text = `[build]
rustflags = ["x"]
[source.crates-io]
replace-with = "m"
[source.m]
registry = "sparse+https://mirror.example/"
[registries.own]
index = "sparse+https://u:p@mirror.example/own/"
index = "sparse+https://mirror.example/own/"
token = "x"
[registry] # default
default = "own"
[http]
proxy = "x"
`
	require.Equal(t, `[source.crates-io]
replace-with = "m"
[source.m]
registry = "sparse+https://mirror.example/"
[registries.own]
index = "sparse+https://mirror.example/own/"
[registry] # default
default = "own"
`, registries(text))
}
