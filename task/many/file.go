//go:build unix

package many

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/task"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Bounds of a file of tasks.
const (
	FileSize = 4 << 20 // bytes
	maxTasks = 1000
)

// A Task is one line of a file.
type Task struct {
	Line   int // in the file, from 1
	Name   string
	Prompt string
	File   string // where the prompt stands, with #HEADING; "" for in Prompt
	Agent  string // "" for the one that all have
	Budget string // in US dollars; "" for the one that all have
}

// keys are those of a task that is an object, and where each goes.
var keys = map[string]func(*Task) *string{
	"prompt": func(t *Task) *string { return &t.Prompt }, "prompt_file": func(t *Task) *string { return &t.File },
	"name": func(t *Task) *string { return &t.Name }, "agent": func(t *Task) *string { return &t.Agent },
	"budget": func(t *Task) *string { return &t.Budget },
}

// keyNames are the keys, as a mistake names them.
const keyNames = "prompt, prompt_file, name, agent, budget"

// Parse reads a file of tasks: a prompt a line, @FILE for one that stands in a file, or a JSON object. Empty lines, and those
// that begin with "# ", are passed over. The error joins all mistakes.
func Parse(name string, text []byte) (tasks []Task, err error) {
	var wrong []error
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || string(line) == "#" || bytes.HasPrefix(line, []byte("# ")) {
			continue
		}
		t, err := parseLine(string(line))
		if t.Line = number; err != nil {
			wrong = append(wrong, At(name, &t, err))
			continue
		}
		tasks = append(tasks, t)
	}
	switch {
	case wrong != nil:
	case len(tasks) == 0:
		wrong = append(wrong, hint.Errorf("write a prompt a line", "%s has no task", name))
	case len(tasks) > maxTasks:
		wrong = append(wrong, hint.Errorf("divide it", "%s has %d tasks, more than %d", name, len(tasks), maxTasks))
	}
	return tasks, errors.Join(wrong...)
}

// At is a mistake in a line.
func At(name string, t *Task, err error) error {
	return hint.Errorf(profiles.Hint(err), "%s:%d: %w", name, t.Line, err)
}

func parseLine(line string) (t Task, err error) {
	switch {
	case line[0] == '{':
		return parseObject(line)
	case line[0] == '@':
		t.File = line[1:]
	default:
		t.Prompt = line
	}
	return t, nil
}

// parseObject reads a task that is a JSON object. A key that stands twice, that nobody knows, or that would be of a policy is
// a mistake: what a task may do the command line alone says, for all.
func parseObject(line string) (t Task, err error) {
	in := json.NewDecoder(strings.NewReader(line))
	in.UseNumber()
	_, _ = in.Token() // the {
	for in.More() {
		word, err := in.Token()
		if err != nil {
			return t, fmt.Errorf("no JSON: %w", err)
		}
		key, _ := word.(string)
		field := keys[key]
		if field == nil {
			return t, notAKey(key)
		}
		var value any
		err = in.Decode(&value)
		number, is := value.(json.Number)
		switch text, isText := value.(string); {
		case err != nil:
			return t, fmt.Errorf("no JSON: %w", err)
		case *field(&t) != "":
			return t, fmt.Errorf("key %q is given twice", key)
		case is && key == "budget":
			t.Budget = number.String()
		case !isText || text == "":
			return t, fmt.Errorf("key %q: want a text that is not empty", key)
		default:
			*field(&t) = text
		}
	}
	if _, err := in.Token(); err != nil { // the }
		return t, fmt.Errorf("no JSON: %w", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return t, errors.New("more than one JSON object in a line")
	}
	if (t.Prompt == "") == (t.File == "") {
		return t, errors.New("want one of the keys prompt and prompt_file")
	}
	if t.Budget != "" {
		if _, err := spending.ParseUSD(t.Budget); err != nil {
			return t, fmt.Errorf("key \"budget\": %w", err)
		}
	}
	return t, nil
}

// notAKey is the error for a key that a task does not have.
func notAKey(key string) error {
	flag := func(f profiles.Flag) bool { return f.Name == "--"+key }
	if profiles.IsKey(key) || slices.ContainsFunc(profiles.Flags[:], flag) {
		return hint.Errorf("give it by a flag of pccrun task, for all tasks", "key %q: a line has no policy of its own", key)
	}
	return hint.Errorf("the keys are "+keyNames, "unknown key %q", key)
}

// Fill reads the prompts that stand in files, checks all, and names the tasks that have no name. A prompt's file is one that
// the policy shows the agent, in the workspace: whoever wrote the line may be another than who gave the command. taken
// reports whether a task of that name stands. The error joins all mistakes.
func Fill(name string, tasks []Task, cwd string, policy *profiles.Policy, taken func(name string) bool) error {
	var wrong []error
	first := map[string]int{}
	for i := range tasks {
		t := &tasks[i]
		if err := t.fill(cwd, policy, taken); err != nil {
			wrong = append(wrong, At(name, t, err))
		}
		if t.Name == "" {
			continue
		}
		if line := first[t.Name]; line != 0 {
			wrong = append(wrong, At(name, t, hint.Errorf("leave the name out, and the prompt gives one", "name %q is that of line %d", t.Name, line)))
		} else {
			first[t.Name] = t.Line
		}
	}
	for i := range tasks {
		t := &tasks[i]
		for try := 0; t.Name == ""; try++ {
			made := task.NameFor(t.Prompt)
			if try > 8 { // many have one prompt
				made += "-" + strconv.Itoa(t.Line)
			}
			if first[made] == 0 && !taken(made) {
				t.Name, first[made] = made, t.Line
			}
		}
	}
	return errors.Join(wrong...)
}

func (t *Task) fill(cwd string, policy *profiles.Policy, taken func(name string) bool) (err error) {
	if t.Name != "" {
		if err := task.CheckName(t.Name); err != nil {
			return err
		}
		if taken(t.Name) {
			return hint.Errorf("pccrun task rm "+t.Name+" removes it", "task %s stands already", t.Name)
		}
	}
	if t.File != "" {
		path := t.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(cwd, path)
		}
		file, _, _ := strings.Cut(path, "#")
		for _, path := range []string{path, file} { // a file's name may have a #
			if _, in := beneath.Path(policy.Workspace, filepath.Clean(path)); !in || policy.Decide(filepath.Clean(path)).Access < profiles.Read {
				return hint.Errorf("put it into the repository, where the agent may read it", "prompt %s: not in the workspace, or hidden there", t.File)
			}
		}
		if t.Prompt, err = task.PromptFrom(path); err != nil {
			return err
		}
	}
	return task.CheckPrompt(t.Prompt)
}

// Read reads a file of tasks, through no link, or standard input for "-".
func Read(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(in, FileSize+1))
		if err == nil && len(text) > FileSize {
			err = fmt.Errorf("standard input has more than %d MiB", FileSize>>20)
		}
		return text, err
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	text, err := beneath.ReadPath(full, FileSize)
	if err != nil {
		return nil, fmt.Errorf("read tasks %s: %w", path, err)
	}
	return text, nil
}
