// Package seccomp makes and explains system call filters.
//
// It promises three things:
//
//   - The built-in filters ([Default], [Nested]) are bytes that a test compiled ahead of
//     time, and that decide as what libseccomp makes of the same rules. The linker put
//     them into the program: having them costs no start-up time. seccomp/internal/rules says what
//     they decide, and why. Below them stands a second filter, made by hand ([Floor],
//     [NestedFloor]).
//   - [CompileOCI] turns an OCI or Docker seccomp profile into the same form
//     without cgo, deciding as libseccomp would, or refuses the profile by
//     line and key. It never drops what it does not understand.
//   - [Run] says what a filter answers to one system call, as the kernel would.
//
// A filter is the array of struct sock_filter of linux/filter.h in the byte
// order of the machine, ready for seccomp(2): eight bytes an instruction.
// Filters are made for two machines: amd64 (also deciding i386 and x32 calls)
// and arm64 (refusing 32-bit arm, unless a custom profile lists it).
package seccomp

// The first needs the headers of linux-libc-dev.
//
//go:generate go test -run TestTableHasTheNumbersOfTheHeaders -update .
//go:generate go test -run TestEmbeddedFiltersAreWhatIsCompiled -update .
//go:generate go test ./internal/floor -run TestFloorIsWhatIsWritten -update

// Default returns the filter that stands in front of every payload, for the
// machine that this program was built for; nil where pccrun starts no sandbox
// of its own. The caller may change the bytes: each call returns a copy.
func Default() []byte { return []byte(defaultFilter) }

// Nested returns the filter for payloads that build sandboxes themselves
// (browsers, bwrap): it is [Default] with user namespaces, mounts and clone3
// allowed. Otherwise as Default.
func Nested() []byte { return []byte(nestedFilter) }

// Floor returns the filter that stands below every other, whichever that is: a
// short deny list made by hand, apart from everything that makes the others.
// Otherwise as Default.
func Floor() []byte { return []byte(floorFilter) }

// NestedFloor returns [Floor] without what payloads need that build sandboxes
// themselves. Otherwise as Default.
func NestedFloor() []byte { return []byte(nestedFloorFilter) }
