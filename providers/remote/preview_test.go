package remote

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOfThisMachine: a port of this machine that leads to a sandbox's answers to no name that another can have lead here.
func TestOfThisMachine(t *testing.T) {
	reached := 0
	h := ofThisMachine(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for host, want := range map[string]int{
		"localhost:3000": 200, "localhost": 200, "127.0.0.1:3000": 200, "[::1]:3000": 200,
		"rebound.example:3000": 403, "localhost.example": 403, "192.168.1.2:3000": 403, "": 403,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "http://localhost/", nil), httptest.NewRecorder()
		r.Host = host
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, host)
	}
	require.Equal(t, 4, reached)
}
