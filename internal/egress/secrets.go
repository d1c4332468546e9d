package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/cgroups"
	"github.com/pccrun/pccrun/netproxy/secrets"
	"github.com/pccrun/pccrun/profiles"
)

// Secrets reads what is injected from files and commands. Each is read once,
// however often a launch begins anew. No error holds a value, or what a command
// printed.
type Secrets struct {
	Timeout time.Duration // of a command; 0 for 30 seconds, since somebody may have to unlock a store

	known map[string]string // by variable
}

// A valueError says that there is no value, or none that can be injected.
type valueError struct{ error }

// A shownError says that a file with a secret would be seen inside.
type shownError struct{ path string }

func (e *shownError) Error() string { return e.path + ": the policy shows this file inside" }

// value returns what an injection's variable stands for, without the end of its
// line. Without Secrets what a file or command would have told is made up.
func (s *Secrets) value(in *profiles.Injection, p *profiles.Policy, host *Host) (string, error) {
	if in.File == "" && len(in.Command) == 0 {
		value := host.Getenv(in.Env)
		if value == "" {
			return "", valueError{errors.New("the variable is not set")}
		}
		return value, nil
	}
	if s == nil {
		return strings.Repeat("0", secrets.MinLength), nil
	}
	if value, ok := s.known[in.Env]; ok {
		return value, nil
	}
	var text []byte
	var err error
	if in.File != "" {
		text, err = readSecret(in.File, p)
	} else {
		text, err = s.print(in.Command, host)
	}
	if err != nil {
		return "", err
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if s.known == nil {
		s.known = map[string]string{}
	}
	s.known[in.Env] = string(text)
	return string(text), nil
}

// readSecret reads a file that the command can neither see nor choose.
func readSecret(path string, p *profiles.Policy) ([]byte, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	for _, name := range [...]string{path, real} {
		if inside(p.Workspace, name) {
			return nil, fmt.Errorf("%s is in the workspace, where the command could change it", path)
		}
		if p.Decide(name).Access >= profiles.Read {
			return nil, &shownError{name}
		}
	}
	// What is no regular file must not be waited for.
	f, err := os.OpenFile(real, os.O_RDONLY|secretFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, secrets.MaxLength+3))
	if err == nil && len(text) > secrets.MaxLength+2 {
		err = fmt.Errorf("%s: over %d bytes", path, secrets.MaxLength)
	}
	return text, err
}

func inside(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// print runs a program outside and returns what it prints. It stays in the
// terminal's foreground: a store may ask for its password there.
func (s *Secrets) print(argv []string, host *Host) ([]byte, error) { return s.run(argv, "", nil, host) }

// run is print for a program with an input, and with variables beside those that each gets.
func (s *Secrets) run(argv []string, input string, environ []string, host *Host) ([]byte, error) {
	program, err := host.Programs.Find(argv[0], func(name string) bool {
		return slices.ContainsFunc(stores[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	if err != nil {
		return nil, err
	}
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := program.Command(ctx, argv[1:]...)
	cmd.Env = append(cmd.Env, environ...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	out := &bounded{}
	cmd.Stdout = out
	cmd.Cancel = func() error {
		cgroups.KillTree(cmd.Process.Pid)
		return nil
	}
	switch err := cmd.Run(); {
	case out.over:
		return nil, fmt.Errorf("%s: over %d bytes", argv[0], secrets.MaxLength)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: no output within %s", argv[0], timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // it ended well, and another process has its pipe
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	return out.text, nil
}

// stores begin the names of the variables by which programs that keep secrets are told where, and as
// whom. None names what they execute.
var stores = [...]string{
	"OP_ACCOUNT", "OP_CONNECT_", "OP_SERVICE_ACCOUNT_TOKEN", "OP_SESSION_", "BW_SESSION", "BWS_ACCESS_TOKEN", "PASSWORD_STORE_DIR",
	"VAULT_ADDR", "VAULT_TOKEN", "VAULT_NAMESPACE", "AWS_PROFILE", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GH_HOST", "GH_CONFIG_DIR", "GH_TOKEN", "GITHUB_TOKEN",
}

// A bounded buffer takes as much as a secret and the end of its line may have,
// and is an error to write more to: the program gets SIGPIPE then.
type bounded struct {
	text []byte
	over bool
}

func (b *bounded) Write(text []byte) (int, error) {
	if b.over = len(b.text)+len(text) > secrets.MaxLength+2; b.over {
		return 0, io.ErrShortWrite
	}
	b.text = append(b.text, text...)
	return len(text), nil
}
