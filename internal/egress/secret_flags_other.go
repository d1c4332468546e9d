//go:build !unix

package egress

// secretFlags are none where no such flag exists: what is opened is looked at all the same.
const secretFlags = 0
