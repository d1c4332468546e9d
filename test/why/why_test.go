//go:build linux

// Package why holds `pccrun why` to what a run then does, with the program as
// it is shipped.
package why

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pccrun/pccrun/test/internal/host"
)

func TestWhyAgreesWithTheRun(t *testing.T) {
	dir := filepath.Dir(host.Program(t))
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			home := env.WorkDir + "/home/u"
			env.Setenv("HOME", home)
			env.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			env.Cd = home + "/project"
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// no runs `pccrun why …`, which must say no: exit status 1.
			"no": func(ts *testscript.TestScript, _ bool, args []string) {
				var exit *exec.ExitError
				if err := ts.Exec(args[0], args[1:]...); !errors.As(err, &exit) || exit.ExitCode() != 1 {
					ts.Fatalf("%v: got %v, want exit status 1", args, err)
				}
			},
		},
	})
}
