package remote

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
)

// choose takes into the request what the user chose of the place, or names what it does not have.
func (p *plan) choose() error {
	f, c, r := p.provider.facts, &p.policy.Place, &p.request
	refused := func(c profiles.Choice, hint, format string, args ...any) error {
		return &profiles.Error{Origin: c.Origin, Cause: p.provider.Name() + ": " + fmt.Sprintf(format, args...), Hint: hint}
	}
	if r.Image = c.Image.Text; r.Image != "" && f.Images == "" {
		return refused(c.Image, "leave it out", "image %s: its sandboxes are all made of the same", r.Image)
	}
	known, open := strings.Join(f.Regions, ", "), false
	if known, open = strings.CutSuffix(known, ", *"); open {
		known += ", and the account's own"
	}
	switch r.Region = c.Region.Text; {
	case r.Region == "" || open || slices.Contains(f.Regions, r.Region):
	case f.Regions == nil:
		return refused(c.Region, "leave it out", "region %s: nobody can choose where its sandboxes are", r.Region)
	default:
		return refused(c.Region, "it is one of "+known, "region %s: it has none of that name", r.Region)
	}
	want := c.AskedSize()
	if want == (profiles.Size{}) {
		return nil
	}
	if f.SizedBy != "" && f.Images == "" {
		return refused(c.Size, "leave it out", "size %s: %s decides", want, f.SizedBy)
	}
	if f.SizedBy != "" && (r.Image != "" || f.Size == profiles.Size{}) {
		r.Size = want // only the sandbox itself says whether it is as large
		return nil
	}
	size, ok := f.Fit(want)
	switch {
	case ok:
		r.Size = size
		return nil
	case f.SizedBy != "":
		return refused(c.Size, "--image names another", "size %s: %s decides, and a sandbox of %s has %s", want, f.SizedBy, f.Image, f.Size)
	case f.Most != profiles.Size{}:
		return refused(c.Size, "ask for less", "size %s: the largest sandbox has %s", want, f.Most)
	}
	var all []string
	for _, s := range f.Sizes {
		all = append(all, s.String())
	}
	return refused(c.Size, "it is one of "+cmp.Or(strings.Join(all, "; "), f.Size.String()), "size %s: it has none so large", want)
}

// size is how large the sandbox of a request will be, as far as that is known before it is made.
func (f *Facts) size(r *Request) profiles.Size {
	switch {
	case r.Image != "" && (f.SizedBy != "" || f.Sizing != nil && f.Sizing(r.Image) && r.Size == profiles.Size{}):
		return profiles.Size{}
	case r.Size != profiles.Size{} && f.SizedBy == "":
		return profiles.Size{CPUs: cmp.Or(r.Size.CPUs, f.Size.CPUs), MemoryMB: cmp.Or(r.Size.MemoryMB, f.Size.MemoryMB)}
	}
	return f.Size
}

// Dollars writes an amount.
func Dollars(usd float64) string { return "$" + strconv.FormatFloat(usd, 'g', 3, 64) }

// An Offer is what a place has and costs, as is known without asking it.
type Offer struct {
	Facts
	Stops, Extends, Previews bool // a sandbox can stop with its files kept; its end can be moved (--keep); its ports have addresses (--publish)
}

// Offer says what the place has and costs.
func (p *Provider) Offer() Offer {
	o := Offer{Facts: p.facts}
	_, o.Stops = p.service.(Sleeper)
	_, o.Extends = p.service.(Extender)
	o.Extends = o.Extends && !o.Elsewhere
	_, o.Previews = p.service.(Previewer)
	return o
}

// Hourly is the price of an hour in words, at the size that a sandbox has where nobody asks for one.
func (f *Facts) Hourly(size profiles.Size) string {
	usd := f.Price(size)
	if usd == 0 || !complete(size) {
		return "a price that is not known"
	}
	return Dollars(usd) + " an hour (price of " + f.Prices.Read + ")"
}

// announce says in one line what is made, what it costs and how much goes up, before anything is.
func (p *plan) announce(l *place, bytes int64) {
	f, r := &l.facts, &p.request
	size := f.size(r)
	words := []string{p.provider.Name()}
	for _, s := range []string{cmp.Or(r.Image, f.Image), cmp.Or(size.String(), "its size by "+cmp.Or(f.SizedBy, "the provider")), cmp.Or(r.Region, f.Region)} {
		if s != "" {
			words = append(words, s)
		}
	}
	words = append(words, f.Hourly(size))
	unit := ""
	if bytes < 1024 {
		unit = " bytes"
	}
	l.observer.Warning(events.Warning{Text: strings.Join(append(words, messages.SizeText(bytes)+unit+" to upload"), ", ")})
	most := time.Duration(math.MaxInt64)
	for _, one := range []time.Duration{f.MaxLife, p.policy.Resources.Deadline()} {
		if one > 0 {
			most = min(most, one)
		}
	}
	if end := keyTime(l); !end.IsZero() && time.Until(end) < most {
		const clock = "15:04"
		text := fmt.Sprintf("the key is accepted until %s: a command that runs at %s is ended then, and what it changed is downloaded", f.KeyEnds.Local().Format(clock), end.Local().Format(clock))
		l.observer.Warning(events.Warning{Text: text, Hint: f.KeyNew})
	}
}

// measure learns how large the sandbox is. One that is smaller than the user asked for is not used, and the price of one that is
// not as it was announced is said; the session's record has it.
func (p *plan) measure(ctx context.Context, l *place) error {
	announced, want := l.facts.size(&p.request), p.request.Size
	l.size = l.box.Size()
	if !complete(l.size) && (want != profiles.Size{} || !complete(announced)) { // what is asked for the sandbox itself says
		now, err := l.p.service.Status(ctx, l.box.ID)
		if err != nil && want != (profiles.Size{}) {
			return err
		} else if err == nil {
			l.size = now.Size()
		}
	}
	if !complete(l.size) {
		l.size = announced
	}
	if l.size != (profiles.Size{}) && !l.size.Holds(want) {
		return &profiles.Error{
			Origin: p.policy.Place.Size.Origin, Cause: fmt.Sprintf("%s: size %s: the sandbox has %s", l.p.Name(), want, l.size), Hint: "--image names one that is larger; or ask for less",
		}
	}
	if l.size != announced {
		l.warn("the sandbox has %s: %s", l.size, l.facts.Hourly(l.size))
	}
	costs := l.p.resource(l.box)
	costs.Hourly = l.facts.Price(l.size)
	l.observer.Created(costs)
	return nil
}

// complete reports whether all of a size is known.
func complete(s profiles.Size) bool { return s.CPUs != 0 && s.MemoryMB != 0 }
