package escape

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

func formatOf(path string) format {
	for _, f := range formats {
		if filepath.Ext(path) == f.ending {
			return f.write
		}
	}
	return nil
}

// A reportFile is where a report goes: what stands already, or nil, and a file is
// made at the end.
type reportFile struct {
	path     string
	standing *os.File
}

// openReports takes the files that reports go to, and tries those that do not
// stand yet: until there is a report, none is seen and what stands is as it was.
func (o *options) openReports() (files []reportFile, err error) {
	for _, path := range o.reports {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if errors.Is(err, os.ErrNotExist) {
			var trial *os.File
			if trial, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
				err = errors.Join(trial.Close(), os.Remove(path))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("report: %w", err)
		}
		files = append(files, reportFile{path, f})
	}
	return files, nil
}

// write puts a whole report where it belongs, in one piece.
func (f reportFile) write(r *Report) error {
	var text bytes.Buffer
	err := formatOf(f.path)(&text, r)
	to := f.standing
	switch {
	case err != nil:
		return err
	case to != nil:
		_ = to.Truncate(0) // of a pipe or a device there is nothing to cut off
	default:
		if to, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644); err != nil {
			return err
		}
	}
	_, err = text.WriteTo(to)
	return errors.Join(err, to.Close())
}

func (o *options) print(r *Report, files []reportFile) error {
	for _, f := range files {
		if err := f.write(r); err != nil {
			return fmt.Errorf("report %s: %w", f.path, err)
		}
	}
	for i, on := range o.formats {
		if on {
			return formats[i].write(os.Stdout, r)
		}
	}
	if o.compare {
		return writeMatrix(os.Stdout, r)
	}
	return writeTable(os.Stdout, r, tableStyle{Colour: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "", All: o.all})
}

// printList names every probe, one a line, as text or as JSON.
func printList(out io.Writer, asJSON bool) int {
	w := bufio.NewWriter(out)
	for _, p := range Probes() {
		if asJSON {
			err := json.NewEncoder(w).Encode(struct {
				ID        string             `json:"id"`
				Name      string             `json:"name"`
				Guarantee profiles.Guarantee `json:"guarantee"`
				Severity  Severity           `json:"severity"`
				Needs     []Need             `json:"needs"`
			}{p.ID, p.Name, p.Guarantee, p.Severity, append([]Need{}, p.Needs...)})
			if err != nil {
				return complain(err)
			}
			continue
		}
		need := ""
		for i, n := range p.Needs {
			need += map[bool]string{true: " (needs ", false: ", "}[i == 0] + string(n)
		}
		if need != "" {
			need += ")"
		}
		fmt.Fprintf(w, "%-8s %-8s %-18s %s%s\n", p.ID, p.Severity, p.Guarantee, p.Name, need)
	}
	if err := w.Flush(); err != nil {
		return complain(err)
	}
	return 0
}

func printExplanation(out io.Writer, id string) int {
	w := bufio.NewWriter(out)
	p := Find(strings.ToUpper(id))
	if p == nil {
		return complain(fmt.Errorf("no probe %q: --list names them", id))
	}
	fmt.Fprintf(w, "%s  %s\n\n%s\n\n", p.ID, p.Name, p.Explain)
	for _, row := range [][2]string{
		{"severity", p.Severity.String()}, {"guarantee", string(p.Guarantee)}, {"expected", p.Expect}, {"governed by", p.Key},
		{"references", strings.Join(p.References, ", ")}, {"flags", strings.Join(p.Flags, " ")}, {"reproduce", "pccrun escape --id " + p.ID},
	} {
		if row[1] != "" {
			fmt.Fprintf(w, "%-12s %s\n", row[0], row[1])
		}
	}
	for _, n := range p.Needs {
		fmt.Fprintf(w, "%-12s %s\n", "needs", n)
	}
	if err := w.Flush(); err != nil {
		return complain(err)
	}
	return 0
}
