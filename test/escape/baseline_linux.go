package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// A waiver accepts one finding for a reason, until a day.
type waiver struct {
	ID      string `json:"id"`
	Target  string `json:"target,omitempty"` // "": every target
	Reason  string `json:"reason"`
	Expires string `json:"expires"` // 2006-01-02
}

// readBaseline reads accepted findings: {"accept": [{"id", "reason", "expires"}]}.
// A waiver without a reason, past its day, or of a probe that does not exist is
// an error: what was accepted once must be looked at again.
func readBaseline(path string, today time.Time) ([]waiver, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	return parseBaseline(path, data, today)
}

func parseBaseline(path string, data []byte, today time.Time) ([]waiver, error) {
	var file struct {
		Accept []waiver `json:"accept"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("baseline %s: %w", path, err)
	}
	if dec.More() {
		return nil, fmt.Errorf("baseline %s: text after the object", path)
	}
	for i, w := range file.Accept {
		if Find(w.ID) == nil {
			return nil, fmt.Errorf("baseline %s: accept[%d]: no probe %q", path, i, w.ID)
		}
		if w.Reason == "" {
			return nil, fmt.Errorf("baseline %s: accept[%d] %s: no reason", path, i, w.ID)
		}
		day, err := time.Parse(time.DateOnly, w.Expires)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: accept[%d] %s: expires %q: want YYYY-MM-DD", path, i, w.ID, w.Expires)
		}
		if !today.Before(day.AddDate(0, 0, 1)) {
			return nil, fmt.Errorf("baseline %s: accept[%d] %s: expired on %s", path, i, w.ID, w.Expires)
		}
	}
	return file.Accept, nil
}

// accept marks the results that waivers cover, and returns the waivers of what
// was tried and is stopped now.
func accept(results []Result, waivers []waiver) (idle []waiver) {
	for _, w := range waivers {
		escaped, stopped := false, false
		for i := range results {
			r := &results[i]
			if w.ID != r.ID || w.Target != "" && w.Target != r.Target {
				continue
			}
			switch r.Verdict {
			case VerdictEscaped:
				r.Accepted, escaped = w.Reason+" (until "+w.Expires+")", true
			case VerdictBlocked, VerdictDegraded:
				stopped = true
			}
		}
		if stopped && !escaped {
			idle = append(idle, w)
		}
	}
	return idle
}
