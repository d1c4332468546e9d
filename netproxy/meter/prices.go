package meter

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/pccrun/pccrun/internal/spending"
)

// listed is what models cost by the lists of their makers. A name stands for its dated versions too. Of those of Google's that
// cost more above 200,000 tokens it has the price above.
//
//go:embed prices.json
var listed []byte

// A Table says what models cost.
type Table struct {
	dated  string
	makers map[string]map[string]price // by maker and model
}

// A price is in US dollars per million tokens. What is left out of the cache costs what input does without it.
type price struct {
	Input      *float64 `json:"input"`
	CacheRead  *float64 `json:"cache_read"`
	CacheWrite *float64 `json:"cache_write"`
	Hour       *float64 `json:"cache_write_1h"`
	Output     *float64 `json:"output"`
	Search     float64  `json:"search"` // of one
	Fast       float64  `json:"fast"`   // times as much
}

// fastFactor is how many times as much a dearer tier costs where the table does not say.
const fastFactor = 2.5

// Load reads the table that comes with the program, and over it the user's own, in the same form; "" for none.
func Load(own string) (*Table, error) {
	t := &Table{makers: map[string]map[string]price{}}
	if err := t.add(listed); err != nil {
		return nil, err
	}
	if own != "" {
		if err := t.add([]byte(own)); err != nil {
			return nil, fmt.Errorf("prices.jsonc: %w", err)
		}
	}
	return t, nil
}

func (t *Table) add(text []byte) error {
	var makers map[string]json.RawMessage
	if err := json.Unmarshal(text, &makers); err != nil {
		return err
	}
	for maker, raw := range makers {
		if maker == "dated" {
			if err := json.Unmarshal(raw, &t.dated); err != nil {
				return err
			}
			continue
		}
		models := map[string]price{}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&models); err != nil {
			return fmt.Errorf("%s: %w", maker, err)
		}
		if t.makers[maker] == nil {
			t.makers[maker] = map[string]price{}
		}
		for model, p := range models {
			if p.Input == nil || p.Output == nil {
				return fmt.Errorf("%s: %s: want input and output", maker, model)
			}
			for _, n := range []*float64{p.Input, p.CacheRead, p.CacheWrite, p.Hour, p.Output, &p.Search, &p.Fast} {
				if n != nil && (*n < 0 || *n > maxPrice) {
					return fmt.Errorf("%s: %s: want numbers from 0 to %d", maker, model, maxPrice)
				}
			}
			t.makers[maker][spelled(model)] = p
		}
	}
	if len(makers) == 0 {
		return errors.New("no prices")
	}
	return nil
}

// Bounds of a price, and of what one answer costs, so that no sum overflows.
const (
	maxPrice  = 1_000_000
	mostMicro = 1e15
)

// spelled is a model's name as it is looked for: without the maker's, by which routers name it, and with one kind of dot.
func spelled(model string) string {
	model = strings.ToLower(model)
	model = model[strings.LastIndexByte(model, '/')+1:]
	return strings.ReplaceAll(model, ".", "-")
}

// version reports whether what follows a model's name says which version of it, and not another model.
func version(rest string) bool {
	if rest == "" {
		return true
	}
	word := rest[1:]
	for _, known := range [...]string{"latest", "preview", "exp", "free", "fast", "customtools"} {
		if strings.HasPrefix(word, known) {
			return strings.IndexByte("-@:[", rest[0]) >= 0
		}
	}
	digits := strings.IndexFunc(word+" ", func(c rune) bool { return c < '0' || c > '9' })
	return strings.IndexByte("-@:", rest[0]) >= 0 && digits >= 4 || rest[0] == '['
}

// find returns the price of a model, and whether the table has it: else it is the dearest of who made it.
func (t *Table) find(api spending.API, model string) (p price, known bool) {
	name, length := spelled(model), -1
	for _, models := range t.makers {
		for key, has := range models {
			if rest, is := strings.CutPrefix(name, key); is && len(key) > length && version(rest) {
				p, length = has, len(key)
			}
		}
	}
	if length >= 0 {
		return p, true
	}
	maker := string(api)
	for word, of := range map[string]spending.API{"claude": spending.Anthropic, "gemini": spending.Google, "gpt": spending.OpenAI} {
		if strings.HasPrefix(name, word) {
			maker = string(of)
		}
	}
	most := -1.0
	for has := range maps.Values(t.makers[maker]) {
		if *has.Output > most || *has.Output == most && *has.Input > *p.Input {
			p, most = has, *has.Output
		}
	}
	return p, false
}

// Price returns what an answer of an API costs. note says what is not as the table has it, "" where all is.
func (t *Table) Price(api spending.API, u Usage) (amount spending.USD, note string) {
	p, known := t.find(api, u.Model)
	if p.Input == nil {
		return 0, "" // a table of nothing: there is none
	}
	or := func(n *float64, other float64) float64 {
		if n == nil {
			return other
		}
		return *n
	}
	write := or(p.CacheWrite, *p.Input)
	hour := min(u.Hour, u.CacheWrite)
	micro := float64(u.Input)**p.Input + float64(u.CacheRead)*or(p.CacheRead, *p.Input) + float64(u.CacheWrite-hour)*write +
		float64(hour)*or(p.Hour, max(write, 2**p.Input)) + float64(u.Output)**p.Output
	if u.Fast {
		if p.Fast == 0 {
			p.Fast = fastFactor
		}
		micro *= p.Fast
	}
	if !known {
		note = fmt.Sprintf("no price of model %q is known: counted as the dearest of %s (prices of %s)", u.Model, api, t.dated)
	}
	micro = math.Ceil(micro + float64(u.Searches)*p.Search*1e6) // a dollar for a million tokens is a millionth for one
	return spending.USD(min(micro, mostMicro)), note
}
