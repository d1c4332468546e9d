// Command tables writes syscalls.txt: the numbers of all system calls that the
// kernel headers name, for the architectures that filters are made for.
//
// The numbers of x86_64, i386, arm64 and arm come from golang.org/x/sys, which is
// generated from the headers of a recent kernel. x32 has the numbers of x86_64
// but for those that asm/unistd_x32.h (linux-libc-dev) gives it alone, from
// 512 on, and the few that it lacks. arm also has calls of its own, far above
// the others (arch/arm/include/uapi/asm/unistd.h).
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

const (
	x32Header = "/usr/include/x86_64-linux-gnu/asm/unistd_x32.h"
	// From here on all architectures share numbers, and x32 has each call that
	// x86_64 has (arch/x86/entry/syscalls/syscall_64.tbl).
	firstCommon = 424
)

var (
	goLine  = regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)`)
	x32Line = regexp.MustCompile(`(?m)^#define __NR_(\w+) \(__X32_SYSCALL_BIT \+ (\d+)\)`)
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func generate() error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return fmt.Errorf("find golang.org/x/sys: %w", err)
	}
	unix := filepath.Join(strings.TrimSpace(string(dir)), "unix")
	columns := make([]map[string]int, 5) // x86_64, i386, x32, arm64, arm
	for i, name := range []string{"zsysnum_linux_amd64.go", "zsysnum_linux_386.go", "", "zsysnum_linux_arm64.go", "zsysnum_linux_arm.go"} {
		if name == "" {
			continue
		}
		if columns[i], err = read(filepath.Join(unix, name), goLine); err != nil {
			return err
		}
	}
	if columns[2], err = read(x32Header, x32Line); err != nil {
		return err
	}
	for name, nr := range columns[0] {
		if nr >= firstCommon {
			columns[2][name] = nr
		}
	}
	for name, nr := range map[string]int{"breakpoint": 1, "cacheflush": 2, "usr26": 3, "usr32": 4, "set_tls": 5, "get_tls": 6} {
		columns[4][name] = 0xf0000 + nr
	}

	var names []string
	for _, column := range columns {
		for name := range column {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var b bytes.Buffer
	for i, name := range names {
		if i > 0 && names[i-1] == name {
			continue
		}
		fmt.Fprintf(&b, "%-31s", name)
		for _, column := range columns {
			nr, ok := column[name]
			if !ok {
				nr = -1
			}
			fmt.Fprintf(&b, "%8d", nr)
		}
		b.WriteString("\n")
	}
	return os.WriteFile("syscalls.txt", b.Bytes(), 0o644)
}

func read(path string, line *regexp.Regexp) (map[string]int, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := make(map[string]int)
	for _, m := range line.FindAllStringSubmatch(string(src), -1) {
		switch m[1] {
		case "ARCH_SPECIFIC_SYSCALL", "SYSCALL_MASK", "OABI_SYSCALL_BASE":
			continue // bounds, not calls
		}
		nr, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, err
		}
		numbers[strings.ToLower(m[1])] = nr
	}
	if len(numbers) < 300 {
		return nil, fmt.Errorf("%s: only %d system calls", path, len(numbers))
	}
	return numbers, nil
}
