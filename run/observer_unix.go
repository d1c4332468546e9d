//go:build unix

package run

import (
	"context"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/providers"
)

// observer takes what a provider reports of a run.
type observer struct{ *flow }

func (o observer) Created(r providers.Resource) {
	if r.Labels == nil {
		r.Labels = map[string]string{providers.LabelKey: o.label}
	}
	if !r.Until.IsZero() {
		o.session.Keep(sessions.KeepSandbox)
	}
	if err := o.session.Update(func(i *sessions.Info) { i.Resource = &r }); err != nil {
		messages.Say(messages.InWords(err))
	}
}

// Started is for what is not carried out in stages. Where it is this machine the command stops with us, if it has no
// terminal of its own.
func (o observer) Started() {
	o.begun(o.Name == providers.Native && o.terminal == nil)
	o.log.Start()
}

// begun is called when the command runs: signals are its own from now on.
func (f *flow) begun(stops bool) {
	f.running.Store(true)
	f.forward(stops)
	f.listen()
	if f.program.Started != nil {
		f.program.Started()
	}
}

// tell writes an event down, where others see it at once.
func (f *flow) tell(e events.Event) {
	f.log.Emit(e)
	f.log.Start()
}

// Decision prints the first that the network refuses when it happens: what waits for an answer, or tries again, is not at
// its end for long.
func (o observer) Decision(d events.NetDecision) {
	o.tell(d)
	if d.Allowed || o.req.Quiet || o.req.Learn || o.terminal != nil {
		return
	}
	if text := DeniedText(d.Denial(), 1); o.printedDenial.CompareAndSwap(nil, &text) && !o.sayNow(text) {
		o.printedDenial.Store(new(string))
	}
}

func (o observer) Closed(c events.NetClosed) {
	if c.Via != "publish" { // what failed on the way in is no host
		o.unreached.closed(c)
	}
	o.tell(c)
}

func (o observer) Denial(d events.Denial) { o.tell(d) }

// sayNow prints a line while the command runs, and reports whether it did: see [terminal.Relay.Say].
func (f *flow) sayNow(text string) bool {
	if relay := f.caught.relay.Load(); relay != nil {
		return relay.Say("pccrun: " + messages.Printable(text))
	}
	messages.Say(text)
	return true
}

// Change takes what a provider has found by a look of its own.
func (o observer) Change(c events.Changed) {
	o.tell(c)
	path := Within(o.policy.Workspace, c.Path)
	o.changes.Lock()
	o.left = append(o.left, events.Change{Path: path, Kind: c.Kind})
	o.changes.Unlock()
	o.session.Keep(KeepChanges)
	if !o.req.Quiet {
		messages.Say(c.What + ": " + path + " (review " + c.Why + ")")
	}
}

func (o observer) Warning(w events.Warning) { o.warn(w, w.Text) }

// warn writes a warning down, and says it in these lines.
func (f *flow) warn(w events.Warning, lines ...string) {
	f.log.Emit(w)
	if w.Hint != "" {
		lines = append(lines, "hint: "+w.Hint)
	}
	for _, line := range lines {
		if !f.req.Quiet {
			messages.Say(line)
		}
	}
}

func (o observer) Ask(ctx context.Context, host string, port uint16) providers.Permission {
	if o.asker == nil {
		return netproxy.Unasked
	}
	return o.asker.Ask(ctx, host, port)
}
