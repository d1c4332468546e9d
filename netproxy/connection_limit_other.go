//go:build !unix

package netproxy

func defaultMaxConns() int { return 1024 }

func transient(error) bool { return false }
