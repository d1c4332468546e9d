package escape

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Errno is an error number that reads and writes itself by name, so that
// reports of different machines can be compared.
type Errno syscall.Errno

// String returns the name, e.g. "EPERM".
func (e Errno) String() string {
	for _, row := range errnoNames {
		if row.errno == syscall.Errno(e) {
			return row.name
		}
	}
	return fmt.Sprintf("errno %d", int(e))
}

// MarshalText writes the name.
func (e Errno) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (e *Errno) UnmarshalText(text []byte) error {
	for _, row := range errnoNames {
		if row.name == string(text) {
			*e = Errno(row.errno)
			return nil
		}
	}
	var n int
	if _, err := fmt.Sscanf(string(text), "errno %d", &n); err != nil {
		return fmt.Errorf("errno %q: unknown name", text)
	}
	*e = Errno(n)
	return nil
}

// errnoIn returns the error number in the first of args that wraps one.
func errnoIn(args []any) Errno {
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			var errno syscall.Errno
			if errors.As(err, &errno) {
				return Errno(errno)
			}
		}
	}
	return 0
}

// errnos reads a list of names such as "EPERM ENOSYS"; it is for tables.
func errnos(names string) []Errno {
	var list []Errno
	for _, name := range strings.Fields(names) {
		var e Errno
		if err := e.UnmarshalText([]byte(name)); err != nil {
			panic("BUG: " + err.Error())
		}
		list = append(list, e)
	}
	return list
}

var errnoNames = []struct {
	name  string
	errno syscall.Errno
}{
	{"EPERM", syscall.EPERM}, {"ENOENT", syscall.ENOENT}, {"ESRCH", syscall.ESRCH}, {"EINTR", syscall.EINTR},
	{"EIO", syscall.EIO}, {"ENXIO", syscall.ENXIO}, {"E2BIG", syscall.E2BIG}, {"EBADF", syscall.EBADF},
	{"ECHILD", syscall.ECHILD}, {"EAGAIN", syscall.EAGAIN}, {"ENOMEM", syscall.ENOMEM}, {"EACCES", syscall.EACCES},
	{"EFAULT", syscall.EFAULT}, {"EBUSY", syscall.EBUSY}, {"EEXIST", syscall.EEXIST}, {"EXDEV", syscall.EXDEV},
	{"ENODEV", syscall.ENODEV}, {"ENOTDIR", syscall.ENOTDIR}, {"EISDIR", syscall.EISDIR}, {"EINVAL", syscall.EINVAL},
	{"ENFILE", syscall.ENFILE}, {"EMFILE", syscall.EMFILE}, {"ENOTTY", syscall.ENOTTY}, {"ETXTBSY", syscall.ETXTBSY},
	{"EFBIG", syscall.EFBIG}, {"ENOSPC", syscall.ENOSPC}, {"ESPIPE", syscall.ESPIPE}, {"EROFS", syscall.EROFS},
	{"EMLINK", syscall.EMLINK}, {"EPIPE", syscall.EPIPE}, {"ERANGE", syscall.ERANGE}, {"EDEADLK", syscall.EDEADLK},
	{"ENAMETOOLONG", syscall.ENAMETOOLONG}, {"ENOSYS", syscall.ENOSYS}, {"ENOTEMPTY", syscall.ENOTEMPTY},
	{"ELOOP", syscall.ELOOP}, {"ENODATA", syscall.ENODATA}, {"EPROTO", syscall.EPROTO}, {"EOVERFLOW", syscall.EOVERFLOW},
	{"ENOTSOCK", syscall.ENOTSOCK}, {"EPROTOTYPE", syscall.EPROTOTYPE}, {"EPROTONOSUPPORT", syscall.EPROTONOSUPPORT},
	{"ESOCKTNOSUPPORT", syscall.ESOCKTNOSUPPORT}, {"EOPNOTSUPP", syscall.EOPNOTSUPP}, {"EAFNOSUPPORT", syscall.EAFNOSUPPORT},
	{"EADDRINUSE", syscall.EADDRINUSE}, {"EADDRNOTAVAIL", syscall.EADDRNOTAVAIL}, {"ENETDOWN", syscall.ENETDOWN},
	{"ENETUNREACH", syscall.ENETUNREACH}, {"ECONNABORTED", syscall.ECONNABORTED}, {"ECONNRESET", syscall.ECONNRESET},
	{"ENOBUFS", syscall.ENOBUFS}, {"EISCONN", syscall.EISCONN}, {"ENOTCONN", syscall.ENOTCONN},
	{"ETIMEDOUT", syscall.ETIMEDOUT}, {"ECONNREFUSED", syscall.ECONNREFUSED}, {"EHOSTUNREACH", syscall.EHOSTUNREACH},
	{"EALREADY", syscall.EALREADY}, {"EINPROGRESS", syscall.EINPROGRESS}, {"ESTALE", syscall.ESTALE},
	{"ENOPROTOOPT", syscall.ENOPROTOOPT}, {"EKEYREVOKED", syscall.EKEYREVOKED}, {"ENOKEY", syscall.ENOKEY}, {"EIDRM", syscall.EIDRM}, {"EDQUOT", syscall.EDQUOT}, {"ECANCELED", syscall.ECANCELED},
}
