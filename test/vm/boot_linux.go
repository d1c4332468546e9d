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
	cache   cache
	jobs    int
	making  sync.Mutex // of what machines share
	dir     string     // where what this source makes is put together
	pccrun  string     // the one to try, "" to build it
	program string     // this program, built for the machine
	payload string     // the image with what the user runs
	root    string     // of the sources
	calm    bool       // without the escape suite
	tests   string     // whole, brief or none
	resume  bool       // what a machine said before counts, if it was as it should be
	report  bool       // nothing else counts
	nice    int        // of the emulators, at least
}

// build makes the payload: pccrun, tests, and the sources that tests read.
func (m *machine) build(ctx context.Context, tests []testedPackage) error {
	stage := filepath.Join(m.dir, "payload")
	if err := os.RemoveAll(stage); err != nil {
		return err
	}
	for _, dir := range []string{"tests", "src"} {
		if err := os.MkdirAll(filepath.Join(stage, dir), 0o755); err != nil {
			return err
		}
	}
	if m.pccrun == "" {
		if err := m.cache.run(ctx, m.root, "make", "-s", "build"); err != nil {
			return err
		}
		m.pccrun = filepath.Join(m.root, "bin", "pccrun")
	}
	if err := m.cache.run(ctx, m.root, "cp", m.pccrun, filepath.Join(stage, "pccrun")); err != nil {
		return err
	}
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil {
		return err
	}
	m.program = filepath.Join(stage, "vm")
	if err := m.cache.run(ctx, m.root, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", m.program, "./test/vm"); err != nil {
		return err
	}
	if len(tests) > 0 { // by one command: it links as many at a time as there are processors
		args := []string{"test", "-c", "-ldflags", "-s -w", "-o", filepath.Join(stage, "tests")}
		for _, t := range tests {
			args = append(args, "./"+t.pkg)
		}
		if err := m.cache.run(ctx, m.root, "go", args...); err != nil {
			return err
		}
	}
	m.payload = filepath.Join(m.dir, "payload.img")
	if len(tests) == 0 {
		return m.cache.image(ctx, m.payload, stage, "100M")
	}
	// What tests read lies where it does here.
	if err := m.cache.run(ctx, m.root, "sh", "-ec", `git ls-files -z | cpio -0pdm --quiet "$1"`, "sh", filepath.Join(stage, "src")); err != nil {
		return err
	}
	return m.cache.image(ctx, m.payload, stage, "400M")
}

// prepare makes what a machine needs, where it is not there yet.
func (m *machine) prepare(ctx context.Context, s *setup) (root string, files kernelFiles, err error) {
	m.making.Lock()
	defer m.making.Unlock()
	if m.payload == "" {
		list := tested
		if m.tests == "none" {
			list = nil
		}
		if err := m.build(ctx, list); err != nil {
			return "", files, err
		}
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
	initrd, err := m.initrd(files.early)
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
	cmd := exec.CommandContext(bounded, "qemu-system-x86_64", m.qemu(s, root, files, dir)...)
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

// processor is all that the emulator can, but for what makes it slow: a fifth
// level of page tables, and string instructions that the kernel takes for fast,
// of which it does one byte at a time. A launch takes half as long without.
const processor = "max,la57=off,erms=off,fsrm=off,smap=off,smep=off"

// qemu returns the emulator's arguments. /dev/kvm is left alone: a nested or
// paravirtual one may offer what no Debian kernel boots on.
func (m *machine) qemu(s *setup, root string, k kernelFiles, dir string) []string {
	// What works around the faults of real processors, and zeroes each page once
	// more, costs an emulated one a good part of its time.
	line := "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off init_on_alloc=0 vm.setup=" + s.name
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
	if s.start == hybrid {
		line += " systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0"
	}
	if s.words != "" {
		line += " " + s.words
	}
	args := []string{
		"-accel", "tcg", "-cpu", processor, "-m", memory, "-smp", "1", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot",
		"-kernel", k.image, "-initrd", filepath.Join(dir, "initrd"), "-append", line, "-device", "virtio-rng-pci", "-serial", "file:" + filepath.Join(dir, "console"),
	}
	for _, disk := range []string{
		root + ",snapshot=on,cache=unsafe", k.modules + ",readonly=on", m.payload + ",readonly=on", filepath.Join(dir, "result") + ",cache=unsafe",
	} {
		args = append(args, "-drive", "if=virtio,format=raw,file="+disk)
	}
	return args
}

// initrd packs this program and the modules that the disks need.
func (m *machine) initrd(early string) ([]byte, error) {
	var a cpioArchive
	for _, dir := range []string{"dev", "modules", "new", "proc", "sys"} {
		a.add(dir, cpioDir|0o755, nil)
	}
	program, err := os.ReadFile(m.program)
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
