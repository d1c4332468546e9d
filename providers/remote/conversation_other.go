//go:build !unix

package remote

import (
	"errors"
	"os"
)

func filesBelow(*os.Root) ([]fileBelow, error) { return nil, errors.ErrUnsupported }
