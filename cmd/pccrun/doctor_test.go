package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/doctor"
)

// The command of a fix stands once in the report, at its end.
func TestBriefly(t *testing.T) {
	fixes := []doctor.Fix{{Steps: []doctor.Step{{File: "/f"}, {Run: []string{"sh", "-c", "mkdir a"}}}}}
	require.Equal(t, "pccrun doctor --fix; or --cpus 1", briefly("as root: mkdir a; or --cpus 1", fixes))
	require.Equal(t, "as root: mkdir b", briefly("as root: mkdir b", fixes), "control")
}
