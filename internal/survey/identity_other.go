//go:build !unix

package survey

import "io/fs"

// identity is known of no file here.
func identity(fs.FileInfo) (file any, names uint64) { return nil, 0 }

func foldedIn(string) Folding { return Folding{} }
