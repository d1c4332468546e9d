//go:build !unix

package filesync

const nonblock = 0
