// Macos is what a person with a Mac runs: `go run ./test/macos`. It builds pccrun, tries whether
// sandbox-exec takes the profile of each built-in, runs the tests that need a Mac, the doctor and the
// escape suite, and writes one report. It changes nothing outside of its own temporary directory, the
// build cache and the report, and sends nothing.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

const reportName = "macos-report.txt"

var sandboxExec = "/usr/bin/sandbox-exec"

// tested are the packages that a Mac uses.
var tested = []string{"./seatbelt", "./internal/survey", "./internal/homes", "./netproxy", "./internal/egress", "./workspace/postrun", "./providers/macos", "./run"}

func main() {
	if runtime.GOOS != "darwin" {
		fmt.Fprintln(os.Stderr, "test/macos: this is "+runtime.GOOS+": it runs on a Mac")
		os.Exit(2)
	}
	file, err := os.Create(reportName)
	if err == nil {
		err = errors.Join(report(io.MultiWriter(os.Stdout, file)), file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test/macos: "+err.Error())
		os.Exit(1)
	}
	fmt.Println("\n" + reportName + " is written: test/macos/README.md says how to send it")
}

// report does all of it. What fails is part of the report.
func report(out io.Writer) error {
	dir, err := os.MkdirTemp("", "pccrun-macos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "pccrun")
	step(out, "the machine", "sw_vers")
	step(out, "the processor", "uname", "-m")
	if !step(out, "build", "go", "build", "-o", program, "./cmd/pccrun") {
		return errors.New("pccrun does not build")
	}
	for _, name := range profiles.Builtin() {
		compiles(out, program, name)
	}
	step(out, "tests", append([]string{"go", "test", "-count=1"}, tested...)...)
	step(out, "doctor", program, "doctor", "--all")
	step(out, "escape", program, "escape")
	container(out, dir, program)
	step(out, "a run", program, "-v", "--", "/bin/sh", "-c", "id; pwd; echo $HOME; git --version; ls -la ~ | head")
	return nil
}

// container runs a command by Docker Desktop or Colima, where one answers and has the image alpine.
func container(out io.Writer, dir, program string) {
	if !step(out, "an engine", "docker", "image", "inspect", "--format", "{{.Id}}", "alpine") {
		return
	}
	linux := filepath.Join(dir, "pccrun-linux-"+runtime.GOARCH)
	step(out, "pccrun for Linux", "env", "CGO_ENABLED=0", "GOOS=linux", "go", "build", "-o", linux, "./cmd/pccrun")
	step(out, "the inode numbers of this Mac", "stat", "-f", "%i", "go.mod", "cmd")
	step(out, "a container", program, "--provider", "docker", "--docker-image", "alpine", "--allow-missing", "fs.hide,fs.protect",
		"--", "sh", "-c", "id; pwd; stat -c %i go.mod cmd; ls -la | head; cat /proc/self/mountinfo; echo x > .git/hooks/pre-commit")
}

// step runs a program, and prints what it prints.
func step(out io.Writer, title string, argv ...string) bool {
	fmt.Fprintf(out, "\n== %s: %s\n", title, strings.Join(argv, " "))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if err != nil {
		fmt.Fprintln(out, "== "+err.Error())
	}
	return err == nil
}

// compiles tries whether sandbox-exec takes a profile, with a command that does nothing.
func compiles(out io.Writer, program, name string) {
	fmt.Fprintf(out, "\n== sandbox-exec takes the profile %s\n", name)
	text, err := exec.Command(program, "spec", "--format", "seatbelt", "--json", "--profile", name, "--", "/usr/bin/true").Output()
	var doc struct {
		Text       string
		Parameters map[string]string
	}
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		fmt.Fprintln(out, "== no profile: "+err.Error())
		return
	}
	argv := []string{"-p", doc.Text}
	for name, value := range doc.Parameters {
		argv = append(argv, "-D", name+"="+value)
	}
	said, err := exec.Command(sandboxExec, append(argv, "/usr/bin/true")...).CombinedOutput()
	if err != nil {
		fmt.Fprintf(out, "NO: %v: %s\n", err, said)
		return
	}
	fmt.Fprintln(out, "yes")
}
