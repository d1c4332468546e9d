package main

import (
	"debug/elf"
	bin "encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// The program for a cloud's processor is this one, or the file that stands in its directory, if it is for that processor.
func TestLinuxProgram(t *testing.T) {
	f, err := linuxProgram(runtime.GOARCH)
	require.NoError(t, err)
	f.Close()

	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	dir := t.TempDir()
	self := filepath.Join(dir, "pccrun")
	require.NoError(t, os.WriteFile(self, nil, 0o755))
	t.Setenv("PCCRUN_LAUNCHER", self)
	_, err = linuxProgram(other)
	require.ErrorContains(t, err, "its sandboxes are linux/"+other)
	require.Contains(t, profiles.Hint(err), "make linux")

	program := func(m elf.Machine) {
		head := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(m), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64, Phentsize: 56}
		copy(head.Ident[:], elf.ELFMAG)
		head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
		out, err := os.Create(filepath.Join(dir, "pccrun-linux-"+other))
		require.NoError(t, err)
		require.NoError(t, bin.Write(out, bin.LittleEndian, &head))
		require.NoError(t, out.Close())
	}
	program(machines[runtime.GOARCH])
	_, err = linuxProgram(other)
	require.ErrorContains(t, err, "is no pccrun for linux/"+other)
	program(machines[other])
	f, err = linuxProgram(other)
	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Len(t, text, 64, "it is read from its beginning")
}
