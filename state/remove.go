package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxLevels is how deep [RemoveAll] goes at once: each level costs an open
// directory.
const maxLevels = 64

// RemoveAll removes a tree, however deep it is, and also where it has directories
// that their owner may not enter: an overlay's work directory is one, and a
// command may have made others. It follows no link. What lies deeper than can be
// gone down at once is moved up, beside the tree, and removed from there; if that
// ends half-way, what was moved begins with the tree's name.
func RemoveAll(root *os.Root, name string) error {
	if err := root.RemoveAll(name); err == nil {
		return nil
	}
	trees := []string{name}
	moved := 0
	for len(trees) > 0 {
		tree := trees[0]
		trees = trees[1:]
		err := removeLevels(root, tree, maxLevels, func(deep string) error {
			moved++
			up := fmt.Sprintf("%s.%d", name, moved)
			trees = append(trees, up)
			return root.Rename(deep, up)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeLevels removes a tree, and hands directories that are too deep to move.
func removeLevels(root *os.Root, path string, levels int, move func(string) error) error {
	info, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		return root.Remove(path)
	}
	if err == nil && info.Mode().Perm()&0o700 != 0o700 {
		err = root.Chmod(path, 0o700)
	}
	if err != nil {
		return err
	}
	if levels == 0 {
		return move(path)
	}
	for { // what is removed while a directory is read may hide what follows
		names, err := someNames(root, path)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return root.Remove(path)
		}
		for _, name := range names {
			if err := removeLevels(root, path+"/"+name, levels-1, move); err != nil {
				return err
			}
		}
	}
}

// someNames returns names of a directory, as long as there are any.
func someNames(root *os.Root, path string) ([]string, error) {
	dir, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(4096)
	if err == io.EOF {
		err = nil
	}
	return names, err
}
