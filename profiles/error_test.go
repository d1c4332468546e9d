package profiles

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Joined mistakes are told one by one, and a sentence with two causes whole.
func TestMistakes(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	require.Equal(t, []error{a, b}, Mistakes(errors.Join(a, b)))
	sentence := fmt.Errorf("scan /x: %w (%w)", a, b)
	require.Equal(t, []error{sentence}, Mistakes(sentence))
	require.Empty(t, Mistakes(nil))
}
