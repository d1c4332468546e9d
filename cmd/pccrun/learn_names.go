//go:build !launcher

package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/profiles/proposals"
)

// Bounds of the search for the names of variables.
const (
	maxPrograms  = 64
	maxProgram   = 64 << 20 // bytes of one
	maxVariables = 8        // as many questions
	shortestName = 4
)

// shells and interpreters, whatever their version, name every variable
// that there is, or their own, and say nothing of who wants one.
var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "env", "busybox", "sudo", "git", "ssh", "perl", "python", "node", "ruby", "java", "php", "lua"}

// ordinary are variables of shells and desktops, whose names stand anywhere.
var ordinary = []string{"OLDPWD", "SHLVL", "MAIL", "HOSTNAME", "DISPLAY", "COLUMNS", "LINES", "LS_COLORS", "HISTFILE", "DBUS_SESSION_BUS_ADDRESS", "WINDOWID", "LESSOPEN", "LESSCLOSE"}

// withheldFrom returns the host's variables that the policy does not pass and
// that the command, or a program that it executed, names. Whether one was looked
// for nobody can see: a program reads its own memory.
func withheldFrom(req *profiles.Request, policy *profiles.Policy, programs []string) (list []proposals.Denial) {
	var names []string
	for _, entry := range req.Host.Environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case value == "", len(name) < shortestName, !isName(name), policy.DecideEnv(name).Action != profiles.EnvScrubbed:
		case slices.Contains(ordinary, name), strings.HasPrefix(name, "XDG_"), strings.HasPrefix(name, "SSH_"), strings.HasPrefix(name, "SUDO_"), strings.HasPrefix(name, "PCCRUN_"), strings.HasSuffix(strings.ToLower(name), "_proxy"):
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	add := func(text, by string) {
		names = slices.DeleteFunc(names, func(name string) bool {
			if len(list) >= maxVariables || !namesIt(text, name) {
				return false
			}
			list = append(list, proposals.Denial{Deed: proposals.Variable, What: name, Program: by})
			return true
		})
	}
	add(strings.Join(req.Command, " "), "the command")
	for _, word := range req.Command[1:] { // a script for an interpreter
		if file := filepath.Join(policy.WorkDir, word); word != "" && !strings.HasPrefix(word, "-") {
			if filepath.IsAbs(word) {
				file = word
			}
			programs = append(programs, file)
		}
	}
	slices.Sort(programs)
	programs = slices.Compact(programs)
	for _, file := range programs[:min(len(programs), maxPrograms)] {
		if len(names) > 0 && !isShell(filepath.Base(file)) {
			add(readProgram(file), file)
		}
	}
	return list
}

func isShell(name string) bool {
	name = strings.TrimRight(name, "0123456789.")
	return slices.Contains(shells, name)
}

// readProgram returns the beginning of a regular file; "" of anything else.
func readProgram(file string) string {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return ""
	}
	defer f.Close()
	var b strings.Builder
	_, _ = io.Copy(&b, io.LimitReader(f, maxProgram))
	return b.String()
}

// namesIt reports whether a text has a name as a word of its own.
func namesIt(text, name string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		begin := from + i
		end := begin + len(name)
		if (begin == 0 || !isNameByte(text[begin-1])) && (end == len(text) || !isNameByte(text[end])) {
			return true
		}
		from = begin + 1
	}
}

func isName(name string) bool {
	for i := range len(name) {
		if !isNameByte(name[i]) {
			return false
		}
	}
	return name != "" && !(name[0] >= '0' && name[0] <= '9')
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}
