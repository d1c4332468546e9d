//go:build unix

package task

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/task/agent"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// PromptSize bounds a prompt: it is one argument of the agent's command line, of which Linux takes 128 KiB
// (MAX_ARG_STRLEN, execve(2)).
const PromptSize = 100 << 10

// PromptFrom reads a prompt from a file, through no link. Behind a # stands a heading of the file: its section is read.
func PromptFrom(path string) (string, error) {
	heading := ""
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if file, rest, is := strings.Cut(path, "#"); is {
			path, heading = file, rest
		}
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	text, err := beneath.ReadPath(full, 1<<20)
	if err != nil {
		return "", fmt.Errorf("read prompt %s: %w", path, err)
	}
	if heading == "" {
		return string(text), nil
	}
	return section(string(text), heading)
}

// section returns what stands below a heading of a page of Markdown, with it, up to the next that is no deeper. If no heading is
// named so it is the first whose name begins so: phase-2 is "Phase 2: the parser".
func section(page, heading string) (string, error) {
	want := anchor(heading)
	found, all := firstSection(page, func(name string) bool { return name == want })
	if found == "" {
		found, _ = firstSection(page, func(name string) bool { return strings.HasPrefix(name, want+"-") })
	}
	if found == "" {
		return "", hint.Errorf("the headings are "+strings.Join(all[:min(len(all), 20)], " "), "no heading %q", heading)
	}
	return found, nil
}

// firstSection returns the first section that is meant, and the names of all headings.
func firstSection(page string, meant func(name string) bool) (found string, all []string) {
	var text strings.Builder
	depth, fenced := 0, false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		level := len(line) - len(strings.TrimLeft(line, "#"))
		if title, is := strings.CutPrefix(line[level:], " "); is && level > 0 && !fenced {
			name := anchor(title)
			all = append(all, "#"+name)
			switch {
			case depth > 0 && level <= depth:
				depth = -1
			case depth == 0 && meant(name):
				depth = level
			}
		}
		if depth > 0 {
			text.WriteString(line)
		}
	}
	return text.String(), all
}

// anchor is how a heading is named in an address.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(title))
}

// CheckPrompt refuses a prompt that an agent cannot be given, or is not to have: it goes to the API, into the agent's
// history and into the record of the task.
func CheckPrompt(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("the prompt is empty")
	case len(text) > PromptSize:
		return hint.Errorf("put the text into a file of the repository, and name the file", "the prompt has %d bytes, more than %d", len(text), PromptSize)
	case strings.ContainsRune(text, 0):
		return errors.New("the prompt has a NUL")
	}
	return NoSecret("the prompt", text)
}

// NoSecret refuses a text of the user's that the records of tasks and runs hold, where it has a secret.
func NoSecret(what, text string) error {
	found, err := filesync.SecretsIn("text", []byte(text))
	if err != nil || len(found) == 0 {
		return err
	}
	return hint.Errorf("give the secret to the command by --inject NAME=HOST", "%s holds a secret in line %d: %s", what, found[0].Line, found[0].Rule)
}

// FindAgent returns the agent of a name; of no name the first that is in the PATH. One of a name that
// works with the programs of another place need not be there.
func FindAgent(name, path string, elsewhere bool) (*agent.Agent, error) {
	there := func(name string) bool {
		return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, name))
			return err == nil && filepath.IsAbs(dir) && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		})
	}
	names := agent.Names()
	if name != "" {
		a, known := agent.Named(name)
		switch {
		case !known:
			return nil, hint.Errorf("one of "+strings.Join(names, ", "), "agent %q is not known", name)
		case !elsewhere && !there(name):
			return nil, hint.Errorf("install it, so that `"+name+" --version` answers", "agent %s is not in the PATH", name)
		}
		return a, nil
	}
	for _, name := range names {
		if a, known := agent.Named(name); known && there(name) {
			return a, nil
		}
	}
	return nil, hint.Errorf("install one of "+strings.Join(names, ", "), "no agent is in the PATH")
}
