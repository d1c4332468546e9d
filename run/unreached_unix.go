//go:build unix

package run

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/events"
)

// unreached are the hosts that the policy allows and the command did not reach when it last tried: it may print no more
// than that something went wrong.
type unreached struct {
	mu    sync.Mutex
	hosts []unreachedHost
}

type unreachedHost struct {
	name, cause string
	tries       int
	last        time.Time
}

// maxUnreached bounds the hosts that are remembered, and maxSaid those that are printed.
const maxUnreached = 256

// closed takes the end of a connection that was allowed.
func (u *unreached) closed(c events.NetClosed) {
	host := c.Host
	if c.Port != 0 {
		host += ":" + strconv.Itoa(c.Port)
	}
	u.note(host, c.Error, time.Now().Add(-time.Duration(c.DurationMS)*time.Millisecond))
}

// note records why a host was not reached, "" for one that was by what began then: what was open before the last failure
// says nothing, as the connection within which a request is inspected.
func (u *unreached) note(host, cause string, began time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.IndexFunc(u.hosts, func(h unreachedHost) bool { return h.name == host })
	switch {
	case cause == "" && i >= 0 && !began.Before(u.hosts[i].last):
		u.hosts = slices.Delete(u.hosts, i, i+1)
	case cause == "":
	case i >= 0:
		u.hosts[i].tries, u.hosts[i].cause, u.hosts[i].last = u.hosts[i].tries+1, cause, time.Now()
	case len(u.hosts) < maxUnreached:
		u.hosts = append(u.hosts, unreachedHost{host, cause, 1, time.Now()})
	}
}

// lines are what is printed, one for each host.
func (u *unreached) lines() (lines []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, h := range u.hosts {
		if i == maxSaid {
			return append(lines, "not reached: more hosts, see pccrun logs --net")
		}
		text := "not reached: " + h.name + ", which is allowed: " + h.cause
		if h.tries > 1 {
			text += fmt.Sprintf(" (%d times)", h.tries)
		}
		lines = append(lines, text)
	}
	return lines
}
