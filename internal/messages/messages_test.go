package messages

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInWords(t *testing.T) {
	two := errors.Join(&fs.PathError{Op: "remove", Path: "a\nb", Err: fs.ErrExist}, errors.New("two"))
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("one"), "one"},
		{two, "remove a\nb: file already exists; two"}, // the name's own is shown as an escape by who prints it
		{fmt.Errorf("make %w inert", two), "make remove a\nb: file already exists; two inert"},
		{errors.Join(two, fmt.Errorf("x: %w", errors.Join(two, errors.New("three")))), "remove a\nb: file already exists; two; x: remove a\nb: file already exists; two; three"},
		{fmt.Errorf("%w, and %w", two, two), "remove a\nb: file already exists; two, and remove a\nb: file already exists; two"},
	} {
		require.Equal(t, c.want, InWords(c.err))
	}
}
