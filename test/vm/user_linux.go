package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A userPart is this program, running as the user where the set-up says. It
// does what it is asked for, one thing after the other, in the same process:
// a fix may be for the very process that asked for it.
//
// The driver writes a line to the FIFO ask, "WHAT FILE"; the user's part leaves
// what it saw in FILE and writes a line to the FIFO done, and before it "note
// TEXT" for the console: a machine that hangs should say where.
type userPart struct {
	order *os.File
	lines chan string
	ended chan error
	asked int
}

// logIn starts the user's part. options are for what the set-up puts around it.
func logIn(s *setup, options []string) (*userPart, error) {
	u := &userPart{lines: make(chan string), ended: make(chan error, 1)}
	var done *os.File
	for name, f := range map[string]**os.File{"ask": &u.order, "done": &done} {
		file := filepath.Join(results, name)
		_ = os.Remove(file)
		if err := unix.Mkfifo(file, 0o600); err != nil {
			return nil, os.NewSyscallError("mkfifo", err)
		}
		if err := os.Chown(file, userID, userID); err != nil {
			return nil, err
		}
		var err error
		if *f, err = os.OpenFile(file, os.O_RDWR, 0); err != nil { // for both: no open waits for the other side
			return nil, err
		}
	}
	go func() {
		for in := bufio.NewScanner(done); in.Scan(); {
			if note, ok := strings.CutPrefix(in.Text(), "note "); ok {
				console("%s", note)
				continue
			}
			u.lines <- in.Text()
		}
	}()
	var cmd *exec.Cmd
	switch {
	case s.start.around():
		var err error
		if cmd, err = aroundCommand(s, options); err != nil {
			return nil, err
		}
		cmd.Env = []string{"PATH=" + path, "HOME=/root"}
	case s.start.systemd():
		cmd = exec.Command("systemctl", "start", "vm-work.service")
	default:
		cmd = exec.Command(program(s), "guest", "work")
		cmd.Env = []string{"PATH=" + path, "HOME=" + home, "USER=t", "SHELL=/bin/bash"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}, Setsid: true}
		cmd.Dir = home
	}
	go func() {
		out, err := cmd.CombinedOutput()
		u.ended <- fmt.Errorf("the user's part ended: %v: %s", err, out)
	}()
	return u, nil
}

// ask has the user's part do something, and reads what it saw.
func (u *userPart) ask(what string, o *outcome) error {
	u.asked++
	file := filepath.Join(results, fmt.Sprintf("%s-%d", what, u.asked))
	if _, err := fmt.Fprintf(u.order, "%s %s\n", what, file); err != nil {
		return err
	}
	select {
	case err := <-u.ended:
		u.ended <- err
		return err
	case line := <-u.lines:
		if line != file {
			return fmt.Errorf("the user's part says %q", line)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	*o = outcome{}
	return json.Unmarshal(text, o)
}

// leave ends the user's part.
func (u *userPart) leave() error {
	_, err := u.order.WriteString("end\n")
	<-u.ended
	return errors.Join(err, u.order.Close())
}

// serve is the user's side: it does what the driver asks for.
func serve() error {
	ask, err := os.OpenFile(filepath.Join(results, "ask"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	done, err := os.OpenFile(filepath.Join(results, "done"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for in := bufio.NewScanner(ask); in.Scan(); {
		what, file, _ := strings.Cut(in.Text(), " ")
		if what == "end" {
			return nil
		}
		note := func(text string) { fmt.Fprintln(done, "note "+text) }
		if err := work(what, note).write(file); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(done, file); err != nil {
			return err
		}
	}
	return errors.New("the driver is gone")
}
