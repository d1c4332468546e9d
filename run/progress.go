package run

import (
	"os"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
)

// ShowProgress shows on a terminal what goes up and comes down; it is nil where there is none.
func ShowProgress() func(what string, done, total int64) {
	if !messages.IsTerminal(os.Stderr) {
		return nil
	}
	var mu sync.Mutex
	p := &messages.Progress{}
	return func(what string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if what != p.What {
			p.End()
			p = messages.NewProgress(what)
		}
		if p.Bytes = total; what != "" {
			p.Show(0, done)
		}
	}
}
