package macos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// thisSystem is macOS.
func thisSystem() system {
	self, err := os.Executable()
	if err != nil {
		self = "pccrun" // which nothing starts: it is no path
	}
	return system{
		exec: "/usr/bin/sandbox-exec", stage: []string{self, Verb},
		log:       []string{"/usr/bin/log", "stream", "--style", "ndjson", "--predicate"},
		processes: processes, bears: bears,
		// signal(3) of both: USR1, USR2, CHLD, CONT, STOP, TSTP, URG, IO, BUS, SYS.
		signals: [][2]int{{10, 30}, {12, 31}, {17, 20}, {18, 19}, {19, 17}, {20, 18}, {23, 16}, {29, 23}, {7, 10}, {31, 12}},
	}
}

func systemVersion() string {
	version, _ := unix.Sysctl("kern.osproductversion")
	return version
}

// zombie is p_stat of a process that has ended (SZOMB in sys/proc.h).
const zombie = 5

// processes are those that run.
func processes() ([]process, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("sysctl kern.proc.all: %w", err)
	}
	list := make([]process, 0, len(all))
	for i := range all {
		k := &all[i]
		if k.Proc.P_stat == zombie {
			continue
		}
		name, _, _ := bytes.Cut(k.Proc.P_comm[:], []byte{0})
		list = append(list, process{
			pid: int(k.Proc.P_pid), parent: int(k.Eproc.Ppid), group: int(k.Eproc.Pgid),
			begun: k.Proc.P_starttime.Nano(), name: string(name),
		})
	}
	return list, nil
}

// bears reads the environment of a process: kern.procargs2 is the number of arguments, the path,
// zeros, the arguments and the variables. Of programs of the system's own it says no variables.
func bears(pid int, variable string) bool {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return false
	}
	return variableIn(b[4:], int(binary.LittleEndian.Uint32(b)), variable)
}
