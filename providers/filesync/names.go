package filesync

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// The bounds of a path.
const (
	maxName  = 255
	maxPath  = 4096
	maxDepth = 128
)

// checkPath refuses a path below the top that another system, a terminal or git takes for another one.
func checkPath(rel string) error {
	if len(rel) > maxPath {
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	}
	depth := 0
	for name := range strings.SplitSeq(rel, "/") {
		if depth++; depth > maxDepth {
			return fmt.Errorf("it lies deeper than %d directories", maxDepth)
		}
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses one name of a path.
func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is no name", name)
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d bytes", maxName)
	case !utf8.ValidString(name):
		return errors.New("the name is not UTF-8")
	}
	for _, c := range name {
		switch {
		case unicode.IsControl(c), unicode.Is(unicode.Bidi_Control, c), c == 0x2028, c == 0x2029, c == 0xfeff, c >= 0xe0000 && c <= 0xe007f, c == utf8.RuneError:
			return fmt.Errorf("it has a character that terminals do not show: U+%04X", c)
		case c == '\\' || c == ':':
			return fmt.Errorf("%q is part of a path on Windows", c)
		}
	}
	if end := name[len(name)-1]; end == '.' || end == ' ' {
		return errors.New("its last character is dropped on Windows")
	}
	if isDevice(name) {
		return errors.New("it is the name of a device on Windows")
	}
	if name != ".git" && readsAsGit(name) {
		return errors.New("other systems read it as .git")
	}
	return nil
}

// isDevice reports whether Windows opens a device by a name, whatever its extension.
func isDevice(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	name = strings.ToUpper(strings.TrimRight(name, " "))
	switch name {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return true
	}
	number := strings.TrimPrefix(strings.TrimPrefix(name, "COM"), "LPT")
	return number != name && (len(number) == 1 && number[0] >= '0' && number[0] <= '9' || number == "¹" || number == "²" || number == "³")
}

// readsAsGit reports whether some file system gives .git by a name: HFS+ leaves code points
// out and letters' case too, NTFS has short names, and drops what stands at the end (is_hfs_dotgit
// and is_ntfs_dotgit of git's utf8.c and path.c).
func readsAsGit(name string) bool {
	plain := strings.Map(func(c rune) rune {
		return unicode.ToLower(visible(c))
	}, name)
	plain, _, _ = strings.Cut(plain, ":")
	plain = strings.TrimRight(plain, ". ")
	if plain == ".git" {
		return true
	}
	number, short := strings.CutPrefix(plain, "git~")
	return short && number != "" && strings.Trim(number, "0123456789") == ""
}

// visible is -1 for a code point that HFS+ leaves out.
func visible(c rune) rune {
	switch {
	case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f, c == 0xfeff:
		return -1
	}
	return c
}

// FoldKey is the same for paths that some file system takes for one: by the case of letters,
// by how a character is composed, and by code points that HFS+ leaves out.
func FoldKey(rel string) string {
	ascii := true
	for i := range len(rel) {
		if rel[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(rel)
	}
	return norm.NFC.String(cases.Fold().String(norm.NFD.String(strings.Map(visible, rel))))
}
