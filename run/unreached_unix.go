//go:build unix

package run

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
)

// unreached are the hosts that the policy allowed and that were not reached when the
// command last tried: it may print no more than that something went wrong.
type unreached struct {
	mu    sync.Mutex
	order []string
	tries map[string]*failedTries
}

type failedTries struct {
	n     int
	cause string
}

// maxUnreached bounds the hosts that are remembered, and maxSaid those that are printed.
const maxUnreached = 256

// closed takes the end of a connection that was allowed.
func (u *unreached) closed(c events.NetClosed) {
	host := c.Host
	if c.Port != 0 {
		host += ":" + strconv.Itoa(c.Port)
	}
	u.note(host, c.Error)
}

// note notes that a host was reached, or why not.
func (u *unreached) note(host, cause string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.tries[host]
	switch {
	case cause == "":
		if t != nil {
			t.n = 0
		}
	case t != nil:
		t.n, t.cause = t.n+1, cause
	case len(u.tries) < maxUnreached:
		if u.tries == nil {
			u.tries = map[string]*failedTries{}
		}
		u.tries[host], u.order = &failedTries{1, cause}, append(u.order, host)
	}
}

// any reports whether there is one.
func (u *unreached) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.order, func(host string) bool { return u.tries[host].n > 0 })
}

// say prints a line for each.
func (u *unreached) say() {
	u.mu.Lock()
	defer u.mu.Unlock()
	said := 0
	for _, host := range u.order {
		t := u.tries[host]
		if t.n == 0 {
			continue
		}
		if said++; said > maxSaid {
			messages.Say("not reached: more hosts, see pccrun logs --net")
			return
		}
		text := "not reached: " + host + ", which is allowed: " + t.cause
		if t.n > 1 {
			text += fmt.Sprintf(" (%d times)", t.n)
		}
		messages.Say(text)
	}
}
