package homes

import "fmt"

// Bounds of an agent's conversations, which leave a home and come back.
const (
	ConversationFiles = 4096
	ConversationBytes = 64 << 20
)

// ErrLong is the error for more.
var ErrLong = fmt.Errorf("more than %d files, or %d MiB", ConversationFiles, ConversationBytes>>20)

// FileBelow is a file or a directory of a tree.
type FileBelow struct {
	Name string
	Dir  bool
	Size int64
}
