//go:build unix

package task

import "errors"

// Try has the agent's sandbox made, filled with the work tree and ended, with the agent installed where the place lacks it, and
// `true` in the agent's place. An error says why the agent would not start.
func (p *Placed) Try() error {
	w := newWorked(p)
	o, err := w.counting(phase{
		dir: p.task.Worktree, place: p.order.Place, flags: w.agentFlags(), command: []string{"true"}, timeout: w.left(), seen: w.event, spent: p.money.end(),
	})
	if err == nil {
		err = o.refusal("the sandbox")
	}
	if failure := o.failure(); err == nil && failure != "" {
		err = errors.New(failure)
	}
	return err
}

// Undo removes what was made for a task at which nothing has worked: the sandbox, though it was to be kept, and the work tree, with
// its homes and its record. The work tree of one in place stays as it is.
func (p *Placed) Undo() error {
	p.order.Keep = false
	leave(p)
	if p.task.InPlace {
		return p.task.forget(p.store)
	}
	return errors.Join(removeTree(p.task.Worktree), removeHomes(p.store, p.task.Worktree), p.task.forget(p.store))
}
