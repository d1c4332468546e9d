package inspect

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/meter"
)

// A bill counts what the answer to one request costs. It is reported once: before the client has the last of the answer, or
// when the request is over.
type bill struct {
	prices  *meter.Table
	api     spending.API
	passage *passage
	once    sync.Once
	counter *meter.Counter // nil: there is no answer that costs
	came    bool           // the answer
	hold    int            // seconds
}

// bills begins to count, if the launcher has said by which API. The request is over when it calls settle.
func (i *Inspector) bills(p *passage, a wire.Answer) (settle func()) {
	if a.Meter == "" {
		return func() {}
	}
	i.billed.Add(1)
	p.bill = &bill{prices: i.cfg.Prices, api: spending.API(a.Meter), passage: p}
	return func() {
		p.bill.settle()
		i.billed.Done()
	}
}

// finish ends all connections, and has what was counted on them reported.
func (i *Inspector) finish() {
	i.Close()
	reported := make(chan struct{})
	go func() {
		i.billed.Wait()
		close(reported)
	}()
	select {
	case <-reported:
	case <-time.After(finishTime):
	}
}

// finishTime is how long requests have to end.
const finishTime = time.Second

// ask has the answer come in a form that can be read.
func (b *bill) ask(r *http.Request) {
	if b != nil {
		r.Header.Set("Accept-Encoding", "identity")
	}
}

// read counts the answer as it passes, from its decoded content on.
func (b *bill) read(resp *http.Response) {
	if b == nil {
		return
	}
	b.came = true
	if resp.StatusCode/100 == 2 {
		b.counter = meter.NewCounter(b.api, resp.Header.Get("Content-Type"))
		resp.Body = &billed{resp.Body, b}
		return
	}
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == 529 {
		b.hold = retryAfter(resp.Header, time.Now())
	}
	b.settle()
}

// unread is for an answer whose content cannot be read: it counts by its bytes.
func (b *bill) unread(resp *http.Response) {
	if b == nil {
		return
	}
	if b.came = true; resp.StatusCode/100 == 2 {
		b.counter = meter.NewCounter(b.api, "")
		_, _ = b.counter.Write(make([]byte, min(max(resp.ContentLength, 0), maxUnread)))
	}
}

// maxUnread bounds what is counted of an answer that was not taken.
const maxUnread = 1 << 20

// settle reports what the answer has cost.
func (b *bill) settle() {
	if b == nil {
		return
	}
	b.once.Do(func() {
		spent := wire.Spent{RetryAfter: b.hold}
		if !b.came && b.passage.up.Load() > 0 { // its client did not wait for it, and it costs all the same
			b.counter = meter.NewCounter(b.api, "")
		}
		if b.counter != nil {
			used, guess := b.counter.End(b.passage.up.Load())
			usd, note := b.prices.Price(b.api, used)
			if guess != "" {
				note = strings.TrimPrefix(note+"; estimated: "+guess, "; ")
			}
			spent = wire.Spent{
				Model: used.Model, Input: used.Input, CacheRead: used.CacheRead, CacheWrite: used.CacheWrite, Output: used.Output,
				USD: int64(usd), Note: note, RetryAfter: b.hold,
			}
		}
		b.passage.target.launcher.Report(wire.Report{Number: b.passage.number, Spent: &spent})
	})
}

// A billed body is counted as it passes.
type billed struct {
	io.ReadCloser
	bill *bill
}

func (b *billed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.bill.counter.Write(p[:n])
	if err != nil || b.bill.counter.Done() {
		b.bill.settle()
	}
	return n, err
}

// maxRetryAfter bounds how long one answer can hold requests up.
const maxRetryAfter = time.Hour

// retryAfter is how many seconds an API wants to be left alone: as long as the answer says, and not at all where it does not.
func retryAfter(h http.Header, now time.Time) int {
	wait := time.Duration(0)
	later := func(at time.Time) { wait = max(wait, at.Sub(now)) }
	if text := h.Get("Retry-After"); text != "" {
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
			wait = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
		} else if at, err := http.ParseTime(text); err == nil {
			later(at)
		}
	} else if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		wait = time.Duration(min(ms/1000, maxRetryAfter.Seconds()) * float64(time.Second))
	} else {
		for name := range h {
			name = strings.ToLower(name)
			if remaining, is := strings.CutSuffix(name, "-reset"); is && strings.HasPrefix(name, "anthropic-ratelimit-") && h.Get(remaining+"-remaining") == "0" {
				if at, err := time.Parse(time.RFC3339, h.Get(name)); err == nil {
					later(at)
				}
			}
		}
	}
	return int((min(wait, maxRetryAfter) + time.Second - 1) / time.Second)
}
