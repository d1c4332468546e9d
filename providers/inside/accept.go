package inside

import (
	"io"

	"github.com/hashicorp/yamux"
)

// Accept takes the next stream that was opened from inside, and reads its kind.
func Accept(session *yamux.Session) (*yamux.Stream, Kind, error) {
	s, err := session.AcceptStream()
	if err != nil {
		return nil, 0, err
	}
	var kind [1]byte
	_, err = io.ReadFull(s, kind[:])
	return s, Kind(kind[0]), err
}
