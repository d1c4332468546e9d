package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// rounds is how often the doctor is asked again: what mends the launch may
// show what the limits lack.
const rounds = 3

// follow does as a reader of pccrun's advice would, as root: first the command
// in the launcher's own hint, which is then taken back, and then what the
// doctor prints, until it has no more to say.
func (r *result) follow(s *setup, u **userPart) error {
	if s.start.around() {
		return r.startAgain(s, u)
	}
	if command, ok := hinted(r.Before.Said); ok {
		o, err := r.step(u, "the launcher's hint", command, "launch")
		if err != nil {
			return err
		}
		if o.Code != 0 {
			return fmt.Errorf("the hint does not help: %s", o.Said)
		}
		if err := s.tweak(); err != nil {
			return fmt.Errorf("again: %w", err)
		}
	}
	last := &r.Before
	for range rounds {
		fixes, err := last.fixes()
		if err != nil || len(fixes) == 0 {
			return err
		}
		var scripts strings.Builder
		again := false
		for _, f := range fixes {
			scripts.WriteString(f.Script)
			again = again || strings.Contains(f.After, "log in again")
		}
		if r.After, err = r.step(u, "the doctor", scripts.String(), "examine"); err != nil {
			return err
		}
		if again {
			if err := (*u).leave(); err != nil {
				return err
			}
			if out, err := exec.Command("systemctl", "stop", fmt.Sprintf("user@%d.service", userID)).CombinedOutput(); err != nil {
				return fmt.Errorf("log out: %w: %s", err, out)
			}
			if *u, err = logIn(s, nil); err != nil {
				return err
			}
			if err := (*u).ask("examine", r.After); err != nil {
				return err
			}
		}
		last = r.After
	}
	return errors.New("the doctor has something to mend each time it is asked")
}

// step runs commands as root, and asks the user what came of it.
func (r *result) step(u **userPart, who, script, ask string) (*outcome, error) {
	f := followed{By: who, Script: script}
	out, err := exec.Command("sh", "-ec", script).CombinedOutput()
	f.Said = string(out)
	r.Followed = append(r.Followed, f)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w: %s: %s", who, err, script, out)
	}
	o := new(outcome)
	return o, (*u).ask(ask, o)
}

// hinted returns the command in a hint that begins with "as root: ".
func hinted(said string) (string, bool) {
	_, rest, ok := strings.Cut(said, "pccrun: hint: as root: ")
	rest, _, _ = strings.Cut(rest, "\n")
	rest, _, _ = strings.Cut(rest, " (")
	return rest, ok
}

// A fix is what the doctor prints of one.
type fix struct{ Why, Script, After string }

func (o *outcome) fixes() ([]fix, error) {
	if o.Code == 0 && o.Doctor == "" {
		return nil, nil // it was not asked: all is kept
	}
	var answer struct{ Fixes []fix }
	if err := json.Unmarshal([]byte(o.Doctor), &answer); err != nil {
		return nil, fmt.Errorf("read the doctor's answer: %w: %s", err, o.DoctorSaid)
	}
	return answer.Fixes, nil
}
