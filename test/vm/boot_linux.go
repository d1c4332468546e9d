package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a machine gets. One processor: two cost more and are no faster where
// the processor is emulated.
const (
	memory     = "3072" // MiB: tests of limits fill some
	resultSize = 32 << 20
	shortBoot  = 15 * time.Minute
	longBoot   = 40 * time.Minute
)

// A machine is what all set-ups of a run share.
type machine struct {
	cache  cache
	jobs   int
	making sync.Mutex       // of what machines share
	dir    string           // where what this source makes is put together
	pccrun string           // the one to try, "" to build it
	built  map[string]built // by processor
	root   string           // of the sources
	calm   bool             // without the escape suite
	tests  string           // whole, brief or none
	resume bool             // what a machine said before counts, if it was as it should be
	report bool             // nothing else counts
	nice   int              // of the emulators, at least
}

// What is made of this source for the machines with one processor.
type built struct {
	program string // this program
	payload string // the image with what the user runs
}

// build makes the payload: pccrun, tests, and the sources that tests read.
func (m *machine) build(ctx context.Context, arch string, tests []testedPackage) (b built, err error) {
	stage := filepath.Join(m.dir, "payload-"+arch)
	if err := os.RemoveAll(stage); err != nil {
		return b, err
	}
	for _, dir := range []string{"tests", "src"} {
		if err := os.MkdirAll(filepath.Join(stage, dir), 0o755); err != nil {
			return b, err
		}
	}
	goTool := func(args ...string) error {
		return m.cache.run(ctx, m.root, "env", append([]string{"CGO_ENABLED=0", "GOARCH=" + arch, "go"}, args...)...)
	}
	program := filepath.Join(stage, "pccrun")
	switch {
	case arch != amd64: // the one that is shipped is put together in the sources, for one processor
		err = goTool("build", "-trimpath", "-ldflags", "-s -w -E github.com/pccrun/pccrun/internal/start.entry", "-o", program, "./cmd/pccrun")
	case m.pccrun == "":
		err = m.cache.run(ctx, m.root, "make", "-s", "build")
		m.pccrun = filepath.Join(m.root, "bin", "pccrun")
		fallthrough
	default:
		err = errors.Join(err, m.cache.run(ctx, m.root, "cp", m.pccrun, program))
	}
	if err != nil {
		return b, err
	}
	b.program = filepath.Join(stage, "vm")
	if err := goTool("build", "-trimpath", "-ldflags", "-s -w", "-o", b.program, "./test/vm"); err != nil {
		return b, err
	}
	if len(tests) > 0 { // by one command: it links as many at a time as there are processors
		args := []string{"test", "-c", "-ldflags", "-s -w", "-o", filepath.Join(stage, "tests")}
		for _, t := range tests {
			args = append(args, "./"+t.pkg)
		}
		if err := goTool(args...); err != nil {
			return b, err
		}
	}
	b.payload = stage + ".img"
	if len(tests) == 0 {
		return b, m.cache.image(ctx, b.payload, stage, "100M")
	}
	// What tests read lies where it does here.
	const copied = `mkdir -p "$1"; git ls-files -z | tar -c --null -T - | tar -x -C "$1"`
	if err := m.cache.run(ctx, m.root, "sh", "-ec", copied, "sh", filepath.Join(stage, "src")); err != nil {
		return b, err
	}
	return b, m.cache.image(ctx, b.payload, stage, "400M")
}

// prepare makes what a machine needs, where it is not there yet.
func (m *machine) prepare(ctx context.Context, s *setup) (root string, files kernelFiles, err error) {
	m.making.Lock()
	defer m.making.Unlock()
	if arch := s.arch(); m.built[arch].payload == "" {
		list := tested
		if m.tests == "none" {
			list = nil
		} else if s.small() && arch != amd64 { // which all of its set-ups are
			list = slices.DeleteFunc(slices.Clone(tested), func(t testedPackage) bool { return !t.alone })
		}
		b, err := m.build(ctx, arch, list)
		if err != nil {
			return "", files, err
		}
		if m.built == nil {
			m.built = map[string]built{}
		}
		m.built[arch] = b
	}
	return m.images(ctx, s)
}

// images returns the root file system and the kernel of a set-up.
func (m *machine) images(ctx context.Context, s *setup) (root string, files kernelFiles, err error) {
	unlock, err := m.cache.lock()
	if err != nil {
		return "", files, err
	}
	defer unlock()
	if root, err = m.cache.userland(ctx, s.userland); err != nil {
		return "", files, err
	}
	for _, k := range kernels {
		if k.name == s.kernel {
			if files, err = m.cache.kernel(ctx, k); err != nil {
				return "", files, fmt.Errorf("kernel %s: %w", k.name, err)
			}
		}
	}
	return root, files, nil
}

// boot starts a machine, waits for its end, and returns what it wrote. A
// machine that ended without a word is an error, with the end of its console.
func (m *machine) boot(ctx context.Context, s *setup, root string, files kernelFiles) (*result, error) {
	dir, err := os.MkdirTemp(m.dir, "boot-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd, err := initrd(m.built[s.arch()].program, files.early)
	if err != nil {
		return nil, err
	}
	disk, log := filepath.Join(dir, "result"), filepath.Join(dir, "console")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "initrd"), initrd, 0o644), os.WriteFile(disk, nil, 0o644), os.Truncate(disk, resultSize)); err != nil {
		return nil, err
	}
	limit := shortBoot
	if len(s.whole) > 0 {
		limit = longBoot
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(bounded, emulators[s.arch()].system, m.qemu(s, root, files, dir)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err = cmd.Start()
	if err == nil {
		if nice, bad := unix.Getpriority(unix.PRIO_PROCESS, 0); bad == nil && 20-nice < m.nice { // the system call's range is 40 to 1
			_ = unix.Setpriority(unix.PRIO_PROCESS, cmd.Process.Pid, m.nice)
		}
		err = cmd.Wait()
	}
	if bounded.Err() != nil {
		err = fmt.Errorf("the machine did not end within %s", limit)
	}
	console, _ := os.ReadFile(log)
	fmt.Fprintf(m.cache.log, "== console of %s\n%s\n", s.name, console)
	if err != nil {
		return nil, fmt.Errorf("%w: %s; its console ended with: %s", err, said.String(), tail(strings.TrimSpace(string(console)), 1500))
	}
	f, err := os.Open(disk)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r result
	if err := json.NewDecoder(io.LimitReader(f, resultSize)).Decode(&r); err != nil {
		return nil, fmt.Errorf("the machine ended without a result; its console ended with: %s", tail(strings.TrimSpace(string(console)), 1500))
	}
	return &r, nil
}

// An emulator is how a processor is emulated.
type emulator struct {
	system  string   // of whole machines
	user    string   // of programs
	args    []string // the machine, and all that the emulator can but for what makes it slow
	console string
}

// emulators are those of the processors. On amd64 a fifth level of page tables, and
// string instructions that the kernel takes for fast, of which it does one byte at
// a time, make a launch take twice as long; on arm64 it is how pointers are signed.
var emulators = map[string]emulator{
	amd64: {"qemu-system-x86_64", "qemu-x86_64", []string{"-cpu", "max,la57=off,erms=off,fsrm=off,smap=off,smep=off"}, "ttyS0"},
	arm64: {"qemu-system-aarch64", "qemu-aarch64", []string{"-M", "virt", "-cpu", "max,pauth-impdef=on"}, "ttyAMA0"},
}

// qemu returns the emulator's arguments. /dev/kvm is left alone: a nested or
// paravirtual one may offer what no Debian kernel boots on.
func (m *machine) qemu(s *setup, root string, k kernelFiles, dir string) []string {
	// What works around the faults of real processors, and zeroes each page once
	// more, costs an emulated one a good part of its time.
	e := emulators[s.arch()]
	line := "console=" + e.console + " quiet panic=-1 net.ifnames=0 mitigations=off init_on_alloc=0 vm.setup=" + s.name
	if m.calm {
		line += " vm.calm"
	}
	switch m.tests {
	case "brief":
		line += " vm.brief"
	case "none":
		line += " vm.no-tests"
	}
	if s.start.systemd() {
		line += " systemd.unit=vm.target systemd.show_status=0 systemd.log_target=null"
	}
	if s.words != "" {
		line += " " + s.words
	}
	args := append(slices.Clone(e.args),
		"-accel", "tcg", "-m", memory, "-smp", "1", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-kernel", k.image, "-initrd", filepath.Join(dir, "initrd"), "-append", line, "-device", "virtio-rng-pci", "-serial", "file:"+filepath.Join(dir, "console"))
	for _, disk := range []string{
		root + ",snapshot=on,cache=unsafe", k.modules + ",readonly=on", m.built[s.arch()].payload + ",readonly=on", filepath.Join(dir, "result") + ",cache=unsafe",
	} {
		args = append(args, "-drive", "if=virtio,format=raw,file="+disk)
	}
	return args
}

// initrd packs this program and the modules that the disks need.
func initrd(init, early string) ([]byte, error) {
	var a cpioArchive
	for _, dir := range []string{"dev", "modules", "new", "proc", "sys"} {
		a.add(dir, cpioDir|0o755, nil)
	}
	program, err := os.ReadFile(init)
	if err != nil {
		return nil, err
	}
	a.add("init", cpioFile|0o755, program)
	modules, err := os.ReadDir(early)
	if err != nil {
		return nil, err
	}
	for _, module := range modules {
		data, err := os.ReadFile(filepath.Join(early, module.Name()))
		if err != nil {
			return nil, err
		}
		a.add("modules/"+module.Name(), cpioFile|0o644, data)
	}
	return a.end(), nil
}
