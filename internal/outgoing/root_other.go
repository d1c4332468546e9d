//go:build !unix

package outgoing

func rootOnly(string) bool { return false }
