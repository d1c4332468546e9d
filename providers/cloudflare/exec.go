package cloudflare

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/pccrun/pccrun/providers/remote"
)

// filePath is where the bridge has a file of a sandbox.
func filePath(name string) string {
	return "/file" + (&url.URL{Path: path.Clean(name)}).EscapedPath()
}

// plain reports whether the bridge reads a name as it is: it decodes an address but for the signs that have a meaning there.
func plain(name string) bool { return !strings.ContainsAny(name, "%?#") }

// spare is a name for a file that the bridge does read.
func spare() string { return home + "/.pccrun-file-" + strings.ToLower(rand.Text()) }

// PutFile writes a file: where its directory may be missing, or its name is one that the bridge does not read, under another name
// first. The call is not repeated once the sandbox is gone.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	dir := path.Dir(name)
	_, direct := s.dirs.Load(box.ID + dir)
	to := name
	if direct = direct && plain(name); !direct {
		to = spare()
	}
	standing := *a
	standing.Open = func() (io.ReadCloser, error) {
		if err := s.gone(box.ID); err != nil {
			return nil, err
		}
		return a.Open()
	}
	err := remote.Send(ctx, &s.Base, box, &standing, &remote.Call{Method: http.MethodPut}, filePath(to))
	if gone := s.late(ctx, box.ID); gone != nil {
		return gone
	}
	if err != nil || direct {
		return err
	}
	const move = `mkdir -p -- "$1" && { [ ! -e "$2" ] || mv -f -- "$2" "$3"; }`
	if _, _, err := remote.Output(ctx, s, box, false, "/bin/sh", "-c", move, "sh", dir, to, name); err != nil {
		return fmt.Errorf("%s: upload: %w", Name, err)
	}
	s.dirs.Store(box.ID+dir, true)
	return nil
}

// GetFile reads a file, one whose name the bridge does not read by a link.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	if err := s.gone(box.ID); err != nil {
		return err
	}
	from := name
	if !plain(name) {
		from = spare()
		if _, _, err := remote.Output(ctx, s, box, false, "ln", "-f", "--", name, from); err != nil {
			return fmt.Errorf("%s: download: %w", Name, err)
		}
		defer func() { _, _, _ = remote.Output(context.WithoutCancel(ctx), s, box, false, "rm", "-f", "--", from) }()
	}
	err := s.Download(ctx, box, &remote.Call{}, filePath(from), begin)
	if remote.HasStatus(err, http.StatusNotFound) {
		return s.orGone(ctx, box, err)
	}
	return err
}

// Line carries lines over files: a command gets no input.
func (s *Service) Line(ctx context.Context, box *remote.Sandbox, argv []string) (io.ReadWriteCloser, error) {
	return remote.FileLine(ctx, s, box, s.Facts.Home, argv)
}

// guard executes a program in the container that Create made. In another one it exits with the status absent.
const (
	guard  = `[ -e "$0" ] || exit 212; exec "$@"`
	absent = 212
)

// Exec executes a program in a sandbox that stands, and follows what it prints. A connection that is lost is not made anew.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	if err := s.gone(box.ID); err != nil {
		return 0, err
	}
	in := map[string]any{"argv": append([]string{"/bin/sh", "-c", guard, madeName}, e.Command()...)}
	code, err := remote.Stream(ctx, &s.Base, box, &remote.Call{In: in}, "/exec", "text/event-stream", func(from io.Reader) (int, error) { return follow(from, e) })
	if gone := s.late(ctx, box.ID); gone != nil {
		return 0, gone
	}
	if err == nil && code == absent {
		err = s.orGone(ctx, box, nil)
	}
	return code, err
}

// follow passes on what a program prints, to its exit status: events of lines, each with an empty line at its end.
func follow(from io.Reader, e *remote.Exec) (int, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 8<<20)
	kind, data := "", ""
	for lines.Scan() {
		line := lines.Text()
		if field, value, _ := strings.Cut(line, ":"); line != "" {
			switch value = strings.TrimPrefix(value, " "); field {
			case "event":
				kind = value
			case "data":
				data += value
			}
			continue
		}
		switch to := map[string]io.Writer{"stdout": e.Out, "stderr": e.Err}[kind]; {
		case kind == "exit":
			var end struct {
				Code *int `json:"exit_code"`
			}
			if err := json.Unmarshal([]byte(data), &end); err != nil || end.Code == nil {
				return 0, fmt.Errorf("its end is %q", data)
			}
			return *end.Code, nil
		case kind == "error":
			return 0, errors.New(data)
		case to != nil:
			text, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return 0, err
			}
			remote.Print(to, text)
		}
		kind, data = "", ""
	}
	return 0, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
