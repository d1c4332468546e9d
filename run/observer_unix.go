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
		r.Labels = map[string]string{providers.LabelKey: o.planner.label}
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
	o.begun(o.Name == providers.Native && o.output.terminal == nil)
	o.log.Start()
}

// begun is called when the command runs: signals are its own from now on.
func (f *flow) begun(stops bool) {
	f.running.Store(true)
	f.log.Emit(events.Running{})
	f.stop = f.caught.forward(f.signals, f.cancel, stops)
	f.listen()
	if f.program.Started != nil {
		f.program.Started(f.session)
	}
}

// tell writes an event down, where others see it at once.
func (o *opened) tell(e events.Event) {
	o.log.Emit(e)
	o.log.Start()
}

// Decision prints the first that the network refuses when it happens: what waits for an answer, or tries again, is not at
// its end for long.
func (o observer) Decision(d events.NetDecision) {
	o.tell(d)
	if d.Allowed || o.req.Quiet || o.req.Learn || o.output.terminal != nil {
		return
	}
	if text := DeniedText(d.Denial(), 1); o.printedDenial.CompareAndSwap(nil, &text) && !sayNow(o.caught, text) {
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
func sayNow(c *catcher, text string) bool {
	if relay := c.relay.Load(); relay != nil {
		return relay.Say("pccrun: " + messages.Printable(text))
	}
	messages.Say(text)
	return true
}

// Change takes what a provider has found by a look of its own.
func (o observer) Change(c events.Changed) {
	o.tell(c)
	path := messages.Within(o.policy.Workspace, c.Path)
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
func (o *opened) warn(w events.Warning, lines ...string) {
	o.log.Emit(w)
	if w.Hint != "" {
		lines = append(lines, "hint: "+w.Hint)
	}
	for _, line := range lines {
		if !o.req.Quiet {
			messages.Say(line)
		}
	}
}

func (o observer) Ask(ctx context.Context, host string, port uint16) providers.Permission {
	if o.output.asker == nil {
		return netproxy.Unasked
	}
	return o.output.asker.Ask(ctx, host, port)
}
