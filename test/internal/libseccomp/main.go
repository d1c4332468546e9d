//go:build linux && cgo && libseccomp

// Command libseccomp has libseccomp make filters, for the tests of package seccomp and for the
// built-in filters: a peer that shares no code with the compiler that is held against it.
//
//	libseccomp -oracle GOARCH [-unknown-arch]
//	    read OCI or Docker profiles from stdin, one a line, and write for each "ok " and the filter in
//	    base64, or "error " and why libseccomp refuses; with -unknown-arch calls of an architecture that
//	    a profile does not list get its default action
//	libseccomp -names
//	    write "arch name number" for each name on stdin and each architecture that libseccomp knows it for
//	libseccomp -version
//	    write the version of libseccomp
package main

import (
	"flag"
	"fmt"
	"os"

	libseccomp "github.com/seccomp/libseccomp-golang"
)

func main() {
	oracle := flag.String("oracle", "", "make filters of profiles for this Go architecture")
	unknown := flag.Bool("unknown-arch", false, "give the default action to architectures that are not listed")
	names := flag.Bool("names", false, "write the numbers of system calls")
	flag.Bool("version", false, "write the version of libseccomp")
	flag.Parse()
	var err error
	switch {
	case *names:
		err = writeNumbers()
	case *oracle != "":
		err = answer(*oracle, *unknown)
	default:
		major, minor, micro := libseccomp.GetLibraryVersion()
		fmt.Printf("%d.%d.%d\n", major, minor, micro)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "libseccomp:", err)
		os.Exit(1)
	}
}

// archNames turns OCI's names into those of libseccomp's Go binding.
var archNames = map[string]string{
	"SCMP_ARCH_X86_64":  "amd64",
	"SCMP_ARCH_X86":     "x86",
	"SCMP_ARCH_X32":     "x32",
	"SCMP_ARCH_AARCH64": "arm64",
	"SCMP_ARCH_ARM":     "arm",
}

func setArches(f *libseccomp.ScmpFilter, arches []string) error {
	native, err := libseccomp.GetNativeArch()
	if err != nil {
		return err
	}
	keep := false
	for _, a := range arches {
		arch, err := libseccomp.GetArchFromString(archNames[a])
		if err != nil {
			return err
		}
		if arch == native {
			keep = true
		} else if err := f.AddArch(arch); err != nil {
			return err
		}
	}
	if !keep {
		return f.RemoveArch(native)
	}
	return nil
}

// export returns the filter's bytes. libseccomp writes to a descriptor, and
// does not write again what a pipe did not take, so it gets a file.
func export(f *libseccomp.ScmpFilter) ([]byte, error) {
	tmp, err := os.CreateTemp("", "filter")
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	if err := os.Remove(tmp.Name()); err != nil {
		return nil, err
	}
	if err := f.ExportBPF(tmp); err != nil {
		return nil, err
	}
	fi, err := tmp.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, fi.Size())
	_, err = tmp.ReadAt(b, 0)
	return b, err
}
