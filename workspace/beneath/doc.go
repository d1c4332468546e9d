// Package beneath opens, reads and makes what lies below a directory, and follows no
// link on the way, whoever changes the tree meanwhile.
package beneath

import "errors"

// ErrTooMuch is returned when what stands there is larger than was asked for.
var ErrTooMuch = errors.New("over the limit of a launch")
