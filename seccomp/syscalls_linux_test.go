package seccomp

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

// TestTableHasTheNumbersOfTheHeaders: syscalls.txt has the numbers of all system calls that the
// kernel headers name, for the architectures that filters are made for.
//
// The numbers of x86_64, i386, arm64 and arm come from golang.org/x/sys, which is
// generated from the headers of a recent kernel. x32 has the numbers of x86_64
// but for those that asm/unistd_x32.h (linux-libc-dev) gives it alone, from
// 512 on, and the few that it lacks: without that header its numbers are taken
// from the table as it is. arm also has calls of its own, far above
// the others (arch/arm/include/uapi/asm/unistd.h).
func TestTableHasTheNumbersOfTheHeaders(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	require.NoError(t, err)
	columns := make([]map[string]uint32, 5) // x86_64, i386, x32, arm64, arm
	for i, name := range []string{"amd64", "386", "", "arm64", "arm"} {
		if name != "" {
			src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+name+".go"))
			require.NoError(t, err)
			columns[i] = numbersIn(t, src, goLine)
		}
	}
	src, err := os.ReadFile(x32Header)
	if err == nil {
		columns[2] = numbersIn(t, src, x32Line)
	} else {
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.False(t, *update, "package linux-libc-dev has the numbers of x32")
		columns[2] = map[string]uint32{}
		for i, name := range allCalls() {
			if nr, ok := (arch{column: 2}).numberAt(i); ok {
				columns[2][name] = nr
			}
		}
	}
	for name, nr := range columns[0] {
		if nr >= firstCommon {
			columns[2][name] = nr
		}
	}
	for name, nr := range map[string]uint32{"breakpoint": 1, "cacheflush": 2, "usr26": 3, "usr32": 4, "set_tls": 5, "get_tls": 6} {
		columns[4][name] = 0xf0000 + nr
	}
	all := map[string]uint32{}
	for _, column := range columns {
		maps.Copy(all, column)
	}
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%-*s", nameSize, name)
		for _, column := range columns {
			nr, ok := column[name]
			text := "-1"
			if ok {
				text = strconv.Itoa(int(nr))
			}
			fmt.Fprintf(&b, "%*s", numberSize, text)
		}
		b.WriteString("\n")
	}
	if *update {
		require.NoError(t, os.WriteFile("syscalls.txt", b.Bytes(), 0o644))
	} else {
		require.Equal(t, syscalls, b.String(), "go generate ./seccomp")
	}
}

func numbersIn(t *testing.T, src []byte, line *regexp.Regexp) map[string]uint32 {
	numbers := make(map[string]uint32)
	for _, m := range line.FindAllStringSubmatch(string(src), -1) {
		switch m[1] {
		case "ARCH_SPECIFIC_SYSCALL", "SYSCALL_MASK", "OABI_SYSCALL_BASE":
			continue // bounds, not calls
		}
		nr, err := strconv.ParseUint(m[2], 10, 32)
		require.NoError(t, err)
		numbers[strings.ToLower(m[1])] = uint32(nr)
	}
	require.Greater(t, len(numbers), 300)
	return numbers
}
