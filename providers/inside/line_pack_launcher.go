//go:build launcher && !place

package inside

import "errors"

const expands = ""

// pack is for the whole program, which alone carries lines: the launcher is to be small.
func pack([]byte) []byte { return nil }

func unpack([]byte) ([]byte, error) { return nil, errors.ErrUnsupported }
