//go:build unix

package review

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// maxDiff bounds the lines of a diff.
const maxDiff = 400

// Diff shows what a finding is about.
func (s *Session) Diff(f workspace.Finding) string {
	var b strings.Builder
	whole := s.State != sessions.Running && Quarantined(f)
	one := func(path string, before, after []byte) {
		path = messages.Printable(path) // a newline in a name is no line of the diff
		if !isText(before) || !isText(after) {
			fmt.Fprintf(&b, "%s: binary, %d bytes\n", path, len(after))
			whole = false
			return
		}
		text := diff.Diff("a/"+path, before, "b/"+path, after)
		_, text, _ = bytes.Cut(text, []byte("\n")) // the line "diff a b"
		n := 0
		for line := range bytes.Lines(text) {
			if n++; n > maxDiff {
				b.WriteString("…\n")
				whole = false
				break
			}
			b.Write(line)
		}
	}
	path := s.name(f.Path)
	switch {
	case f.Kind == workspace.Address:
	case f.Kind == workspace.Review && f.What == "new":
		now, err := quarantine.ReadNow(f.Path)
		if err != nil {
			return notShown(err)
		}
		one(path, nil, now)
	case f.Kind == workspace.Review && strings.HasPrefix(f.What, "in "):
		return "git show shows it\n"
	case f.Stash == "" && f.Parts == nil:
		return "the content before the run was not kept\n"
	case f.Kind == workspace.Review:
		now, err := quarantine.ReadNow(f.Path)
		if err != nil && f.What != "removed" {
			return notShown(err)
		}
		err = f.Show(s.dir, func(_ string, before []byte, why string) {
			if why == "" {
				one(path, before, now)
			}
		})
		if err != nil {
			return notShown(err)
		}
	default:
		var digests map[string]string
		if whole {
			var err error
			digests, err = f.Seal(s.dir, false)
			whole = err == nil
		}
		left := f.Left(s.dir)
		err := f.Show(s.dir, func(below string, content []byte, why string) {
			if why != "" {
				fmt.Fprintf(&b, "%s: %s\n", path+below, why)
				return
			}
			one(path+below, left, content)
		})
		if err != nil {
			return notShown(err)
		}
		if whole {
			maps.Copy(s.now.Digests, digests)
		}
	}
	return b.String()
}

func notShown(err error) string { return "not shown: " + err.Error() + "\n" }

func isText(b []byte) bool { return bytes.IndexByte(b, 0) < 0 && utf8.Valid(b) }
