package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFuzzed(t *testing.T) {
	executions, inputs := fuzzed("fuzz: elapsed: 0s, gathering baseline coverage: 0/192 completed\n" +
		"fuzz: elapsed: 3s, execs: 325017 (108336/sec), new interesting: 11 (total: 202)\n" +
		"fuzz: elapsed: 6s, execs: 680218 (118402/sec), new interesting: 13 (total: 204)\nPASS\n")
	require.Equal(t, []string{"680218", "13"}, []string{executions, inputs})
	executions, inputs = fuzzed("--- FAIL: FuzzA\n")
	require.Equal(t, []string{"0", "0"}, []string{executions, inputs})
}
