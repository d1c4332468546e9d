//go:build unix && !linux

package docker

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/pccrun/pccrun/providers"
)

// No engine has this system's kernel: each is in a virtual machine.

const startEngine = "open -a Docker, or colima start"

const inspects = false

// launcher returns the file that is pid 1 in a container: pccrun for Linux, beside this program.
func launcher(host providers.Host) (string, error) {
	own, err := filepath.EvalSymlinks(host.Launcher)
	if err != nil {
		return "", err
	}
	name := "pccrun-linux-" + runtime.GOARCH
	file := filepath.Join(filepath.Dir(own), name)
	if _, err := os.Stat(file); err != nil {
		return "", &EngineError{
			Text:   "pccrun for Linux, which is the first process of a container",
			Advice: "in pccrun's sources: CGO_ENABLED=0 GOOS=linux GOARCH=" + runtime.GOARCH + " go build -o " + file + " ./cmd/pccrun",
			Err:    err,
		}
	}
	return file, nil
}

func (f *Facts) look() error { return nil }

func (r *running) readBirthTimes() error { return nil }
