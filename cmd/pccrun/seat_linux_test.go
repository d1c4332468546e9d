package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// statsOfAll returns what proc(5) has in stat, from the state on, of each process.
func statsOfAll() map[int][]string {
	all := map[int][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); err == nil && len(f) > 3 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			all[pid] = f
		}
	}
	return all
}

// A seat is a terminal with a shell that controls jobs; pccrun is in the bin of its home.
type seat struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	shown  strings.Builder
}

func newSeat(t *testing.T, p *pupil) *seat {
	program, err := exec.LookPath("pccrun")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(p.home+"/bin", 0o755))
	require.NoError(t, os.Symlink(program, p.home+"/bin/pccrun"))
	fd, slave := newTerminal(t)
	require.NoError(t, unix.SetNonblock(fd, true))
	s := &seat{t: t, master: os.NewFile(uintptr(fd), "master")}
	defer slave.Close()
	shell := exec.Command("/bin/sh", "-i")
	shell.Dir, shell.Env = p.dir, append(p.env, "PS1=at the prompt: ", "ENV=")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, shell.Start())
	t.Cleanup(func() {
		shell.Process.Kill()
		s.master.Close() // and so its jobs hang up
		shell.Wait()
		session := strconv.Itoa(shell.Process.Pid)
		for pid, f := range statsOfAll() { // those in the background the shell would have told
			if f[3] == session {
				_ = syscall.Kill(pid, syscall.SIGHUP)
			}
		}
		await.Until(t, "the end of its jobs", func() bool { // a run records its end in what is to be removed
			for _, f := range statsOfAll() {
				if f[3] == session {
					return false
				}
			}
			return true
		})
	})
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := s.master.Read(b)
			s.mu.Lock()
			s.shown.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *seat) typed(keys string) {
	s.t.Helper()
	_, err := s.master.WriteString(keys)
	require.NoError(s.t, err)
}

// all is what has been shown since it was last forgotten.
func (s *seat) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *seat) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Reset()
}

func (s *seat) awaits(pattern string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("shown: %q", s.all())
		}
	}()
	expr := regexp.MustCompile(pattern)
	await.Until(s.t, pattern, func() bool { return expr.MatchString(s.all()) })
}
