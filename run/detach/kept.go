package detach

import (
	"bytes"

	"github.com/pccrun/pccrun/internal/terminal"
)

// keepSize is how much of the output is kept at least, if there is as much, and half of what is kept at most. Bytes.
const keepSize = 128 << 10

// kept is the end of what a run has printed, in two parts: when the later one is full, the earlier one is forgotten.
type kept struct {
	earlier, later []byte
	forgotten      int64           // bytes
	state          terminal.Filter // which has read what is forgotten: the modes of the terminal, and a sequence that goes on
}

func (k *kept) add(b []byte) {
	if len(k.later)+len(b) > keepSize {
		_ = k.state.Filter(k.earlier)
		k.forgotten += int64(len(k.earlier))
		k.earlier, k.later = k.later, nil
	}
	k.later = append(k.later, b...)
}

// lines are the end of a text, from the beginning of a line on.
func (k *kept) lines() []byte {
	all := append(bytes.Clone(k.earlier), k.later...)
	if k.forgotten > 0 {
		_, all, _ = bytes.Cut(all, []byte("\n"))
	}
	return all
}

// screen is what brings a terminal to where the output has brought it: the modes that were on, then the output, without
// the questions in it, whose answers nobody waits for any more.
func (k *kept) screen() []byte {
	state := k.state.Clone()
	state.Answered = true
	out := state.Modes()
	out = append(out, state.Filter(k.earlier)...)
	return append(out, state.Filter(k.later)...)
}
