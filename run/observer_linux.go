package run

import (
	"context"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/sessions"
)

// observer is what a provider tells of a run.
type observer struct{ *flow }

// Created is told of pid 1 by the provider of this machine.
func (o observer) Created(r providers.Resource) {
	if o.label == "" {
		if err := o.oweAlso(r.ID + "\n"); err != nil {
			o.abort(err)
		}
		return
	}
	if r.Labels == nil {
		r.Labels = map[string]string{providers.LabelKey: o.label}
	}
	if err := o.session.Update(func(i *sessions.Info) { i.Resource = &r }); err != nil {
		messages.Say(messages.InWords(err))
	}
}

// abort ends a launch.
func (f *flow) abort(err error) {
	f.aborted = err
	f.cancel()
}

func (o observer) Started() {
	o.running.Store(true)
	o.forward(false)
	if o.program.Started != nil {
		o.program.Started()
	}
	o.log.Start()
}

// tell writes an event down, where others see it at once.
func (f *flow) tell(e events.Event) {
	f.log.Emit(e)
	f.log.Start()
}

func (o observer) Decision(d events.NetDecision) { o.tell(d) }

func (o observer) Closed(c events.NetClosed) {
	o.missed.closed(c)
	o.tell(c)
}

func (o observer) Denial(d events.Denial) { o.tell(d) }

func (o observer) Change(c events.Changed) { o.tell(c) }

func (o observer) Warning(w events.Warning) {
	o.log.Emit(w)
	if o.req.Quiet {
		return
	}
	messages.Say(w.Text)
	if w.Hint != "" {
		messages.Say("hint: " + w.Hint)
	}
}

func (o observer) Ask(ctx context.Context, host string, port uint16) providers.Permission {
	if o.asker == nil {
		return netproxy.Unasked
	}
	return o.asker.ask(ctx, host, port)
}
