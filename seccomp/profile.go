package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A profile is what a JSON profile says for one machine, after its conditions
// on architecture, capabilities and kernel were answered.
type profile struct {
	fallback Action
	arches   []arch
	rules    []rule
}

// A rule gives calls an action: if all its conditions hold.
type rule struct {
	names  []string
	action Action
	conds  []condition
	origin string // "line 12: syscalls[3]", for errors
}

// A condition compares one argument: all 64 bits of it, or the lower 32.
type condition struct {
	arg    uint
	op     comparison
	narrow bool
	mask   uint64 // maskedEqual only
	value  uint64
}

type comparison uint8

const (
	equal comparison = iota
	notEqual
	less
	lessEqual
	greater
	greaterEqual
	maskedEqual
)

// parseProfile reads the JSON form of an OCI runtime configuration's
// linux.seccomp, with what Docker and Podman add to it: archMap, name, comment,
// includes, excludes, errno and defaultErrno. goarch is where it will run.
func parseProfile(src []byte, goarch string) (*profile, error) {
	machine, ok := machines(goarch)
	if !ok {
		return nil, fmt.Errorf("architecture %q: want amd64 or arm64", goarch)
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(src)), src: src, machine: machine}
	p.dec.UseNumber()
	return p.profile()
}

// A parser walks the tokens of a profile. It keeps the path to where it is for
// errors, and stops at the first.
type parser struct {
	dec     *json.Decoder
	src     []byte
	path    []string
	machine machine
	err     error

	counted int64 // bytes of src in which lines are counted
	line    int   // newlines in them
}

// fail keeps the first error, with line and key.
func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s", p.origin(), fmt.Sprintf(format, args...))
	}
}

func (p *parser) origin() string {
	to := p.dec.InputOffset()
	p.line += bytes.Count(p.src[p.counted:to], []byte("\n"))
	p.counted = to
	at := fmt.Sprintf("line %d", 1+p.line)
	if key := strings.TrimPrefix(strings.Join(p.path, ""), "."); key != "" {
		at += ": " + key
	}
	return at
}

func (p *parser) token() json.Token {
	if p.err != nil {
		return nil
	}
	t, err := p.dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		p.fail("%v", err)
	}
	return t
}

// keys are what an object may hold, and what reads the value of each.
type keys map[string]func()

// object reads an object, or null, and returns where it began. A key that comes twice, or that is
// not known, is an error.
func (p *parser) object(known keys) (origin string) {
	switch t := p.token(); t {
	case nil:
		return ""
	case json.Delim('{'):
	default:
		p.fail("%v: want an object", t)
		return ""
	}
	origin = p.origin()
	seen := make(map[string]bool)
	for p.err == nil && p.dec.More() {
		key, _ := p.token().(string)
		p.path = append(p.path, "."+printable(key))
		switch read := known[key]; {
		case p.err != nil:
		case seen[key]:
			p.fail("given twice")
		case read == nil:
			p.fail("unknown key")
		default:
			read()
		}
		seen[key] = true
		p.path = p.path[:len(p.path)-1]
	}
	p.token()
	return origin
}

// array reads an array, or null, and calls item for each element.
func (p *parser) array(item func()) {
	switch t := p.token(); t {
	case nil:
		return
	case json.Delim('['):
	default:
		p.fail("%v: want an array", t)
		return
	}
	for i := 0; p.err == nil && p.dec.More(); i++ {
		p.path = append(p.path, fmt.Sprintf("[%d]", i))
		item()
		p.path = p.path[:len(p.path)-1]
	}
	p.token()
}

func (p *parser) text() string {
	t := p.token()
	s, ok := t.(string)
	if !ok {
		p.fail("%v: want a string", t)
	}
	return s
}

func (p *parser) texts() (list []string) {
	p.array(func() { list = append(list, p.text()) })
	return list
}

func (p *parser) number(limit uint64) uint64 {
	t := p.token()
	n, ok := t.(json.Number)
	if !ok {
		p.fail("%v: want a number", t)
		return 0
	}
	v, err := strconv.ParseUint(n.String(), 10, 64)
	if err != nil || v > limit {
		p.fail("%s: want a whole number from 0 to %d", printable(n.String()), limit)
		return 0
	}
	return v
}

// printable returns s, or a quoted and shortened form that is safe in one line.
func printable(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// An answer is an action with the errno that goes with it, as a profile gives
// them: in up to three keys, in any order.
type answer struct {
	action    string
	errnoRet  *uint64 // errnoRet
	errnoName string  // errno
}

// maxErrno is MAX_ERRNO of linux/err.h; the kernel cuts larger ones down to it.
const maxErrno = 4095

func (p *parser) errnoRet() *uint64 {
	v := p.number(maxErrno)
	return &v
}

// resolve returns the action. An errno may be given only with SCMP_ACT_ERRNO,
// where it is EPERM if it is not given.
func (p *parser) resolve(a answer) Action {
	action, known := map[string]Action{
		"SCMP_ACT_ALLOW": RetAllow, "SCMP_ACT_ERRNO": RetErrno, "SCMP_ACT_KILL": RetKillThread, "SCMP_ACT_KILL_THREAD": RetKillThread,
		"SCMP_ACT_KILL_PROCESS": RetKillProcess, "SCMP_ACT_TRAP": RetTrap, "SCMP_ACT_LOG": RetLog,
	}[a.action]
	switch {
	case known:
	case a.action == "SCMP_ACT_TRACE": // a payload may trace its children, and would decide for itself
		p.fail("action SCMP_ACT_TRACE: not supported: a tracer inside would decide")
	case a.action == "SCMP_ACT_NOTIFY":
		p.fail("action SCMP_ACT_NOTIFY: not supported: there is no supervisor to ask")
	case a.action == "":
		p.fail("no action")
	default:
		p.fail("action %s: unknown", printable(a.action))
	}
	if action != RetErrno {
		if a.errnoRet != nil || a.errnoName != "" {
			p.fail("an errno is for SCMP_ACT_ERRNO only")
		}
		return action
	}
	number := uint64(1) // EPERM
	if a.errnoName != "" {
		named, ok := errnoNumber(a.errnoName)
		if !ok {
			p.fail("errno %s: not known by name here: give its number as errnoRet", printable(a.errnoName))
		}
		number = named
	}
	if a.errnoRet != nil {
		if a.errnoName != "" && *a.errnoRet != number {
			p.fail("errno %s and errnoRet %d contradict each other", a.errnoName, *a.errnoRet)
		}
		number = *a.errnoRet
	}
	return Errno(uint16(number))
}

// errnos are those that profiles name; all machines that filters are made for have the numbers of
// asm-generic/errno.h.
const errnos = " EPERM=1 ENOENT=2 ESRCH=3 EIO=5 EBADF=9 EAGAIN=11 ENOMEM=12 EACCES=13 EFAULT=14 ENODEV=19 EINVAL=22 " +
	"ENOTTY=25 ENOSYS=38 EPROTONOSUPPORT=93 ESOCKTNOSUPPORT=94 EOPNOTSUPP=95 ENOTSUP=95 EAFNOSUPPORT=97 "

func errnoNumber(name string) (uint64, bool) {
	_, after, known := strings.Cut(errnos, " "+name+"=")
	digits, _, _ := strings.Cut(after, " ")
	number, err := strconv.ParseUint(digits, 10, 16)
	return number, known && err == nil
}

func (p *parser) profile() (*profile, error) {
	var prof profile
	var fallback answer
	var listed, mapped []string
	listener := func() {
		if p.text() != "" {
			p.fail("not supported: there is no supervisor to ask")
		}
	}
	p.object(keys{
		"defaultAction":    func() { fallback.action = p.text() },
		"defaultErrnoRet":  func() { fallback.errnoRet = p.errnoRet() },
		"defaultErrno":     func() { fallback.errnoName = p.text() },
		"architectures":    func() { listed = p.texts() },
		"archMap":          func() { mapped = p.archMap() },
		"flags":            p.flags,
		"listenerPath":     listener,
		"listenerMetadata": listener,
		"syscalls":         func() { p.array(func() { prof.rules = append(prof.rules, p.rule()...) }) },
	})
	if p.err == nil {
		if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
			p.fail("something follows the profile")
		}
	}
	prof.fallback = p.resolve(fallback)
	if len(listed) > 0 && len(mapped) > 0 {
		p.fail("architectures and archMap: give one of them")
	}
	prof.arches = p.arches(append(listed, mapped...))
	return &prof, p.err
}

// archMap returns the architectures that the map gives this machine.
func (p *parser) archMap() (list []string) {
	p.array(func() {
		var name string
		var sub []string
		p.object(keys{"architecture": func() { name = p.text() }, "subArchitectures": func() { sub = p.texts() }})
		p.arches(append(sub, name)) // a mistake counts, also for another machine
		if name == p.machine.native().oci {
			list = append(append(list, name), sub...)
		}
	})
	return list
}

// arches returns what of a list this machine's kernel could run. Its own
// architecture is always among it, as with OCI runtimes.
func (p *parser) arches(names []string) []arch {
	list := []arch{p.machine.native()}
	for _, name := range names {
		if !slices.Contains(ociArches, name) {
			p.fail("architecture %s: unknown", printable(name))
		}
		for _, a := range p.machine.arches[1:] {
			if a.oci == name && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// ociArches are the names of the OCI runtime specification 1.3.
var ociArches = []string{
	"SCMP_ARCH_X86", "SCMP_ARCH_X86_64", "SCMP_ARCH_X32", "SCMP_ARCH_ARM", "SCMP_ARCH_AARCH64", "SCMP_ARCH_MIPS",
	"SCMP_ARCH_MIPS64", "SCMP_ARCH_MIPS64N32", "SCMP_ARCH_MIPSEL", "SCMP_ARCH_MIPSEL64", "SCMP_ARCH_MIPSEL64N32",
	"SCMP_ARCH_PPC", "SCMP_ARCH_PPC64", "SCMP_ARCH_PPC64LE", "SCMP_ARCH_S390", "SCMP_ARCH_S390X", "SCMP_ARCH_PARISC",
	"SCMP_ARCH_PARISC64", "SCMP_ARCH_RISCV64", "SCMP_ARCH_LOONGARCH64", "SCMP_ARCH_M68K", "SCMP_ARCH_SH", "SCMP_ARCH_SHEB",
}

// flags accepts what makes no difference here: the filter is loaded before
// there is a second thread, and speculation is the launcher's choice.
func (p *parser) flags() {
	for _, flag := range p.texts() {
		switch flag {
		case "SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_SPEC_ALLOW":
		default:
			p.fail("flag %s: not supported", printable(flag))
		}
	}
}

// rule reads an element of syscalls and returns the rules that it comes to
// here: none if it is for another machine, or for capabilities, which a
// payload never has.
func (p *parser) rule() []rule {
	var r rule
	var a answer
	var one string
	applies := true
	r.origin = p.object(keys{
		"name":     func() { one = p.text() },
		"names":    func() { r.names = p.texts() },
		"action":   func() { a.action = p.text() },
		"errnoRet": func() { a.errnoRet = p.errnoRet() },
		"errno":    func() { a.errnoName = p.text() },
		"args":     func() { p.array(func() { r.conds = append(r.conds, p.condition()) }) },
		"comment":  func() { p.text() },
		"includes": func() { applies = p.includes() && applies },
		"excludes": func() { applies = !p.excludes() && applies },
	})
	if one != "" {
		if len(r.names) > 0 {
			p.fail("name and names: give one of them")
		}
		r.names = []string{one}
	}
	if len(r.names) == 0 || slices.Contains(r.names, "") {
		p.fail("a rule without a system call's name")
	}
	r.action = p.resolve(a)
	if !applies {
		return nil
	}
	if !repeats(r.conds) {
		return []rule{r}
	}
	// Conditions on the same argument are alternatives, and make those beside
	// them alternatives too: so runc and crun have always read them.
	var list []rule
	for _, c := range r.conds {
		alternative := r
		alternative.conds = []condition{c}
		list = append(list, alternative)
	}
	return list
}

// repeats reports whether two conditions are about one argument.
func repeats(conds []condition) bool {
	var seen [6]bool
	for _, c := range conds {
		if seen[c.arg] {
			return true
		}
		seen[c.arg] = true
	}
	return false
}

func (p *parser) condition() condition {
	var c condition
	var op string
	var value, valueTwo uint64
	p.object(keys{
		"index":    func() { c.arg = uint(p.number(5)) },
		"value":    func() { value = p.number(1<<64 - 1) },
		"valueTwo": func() { valueTwo = p.number(1<<64 - 1) },
		"op":       func() { op = p.text() },
	})
	i := slices.Index([]string{"EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ"}, strings.TrimPrefix(op, "SCMP_CMP_")) // as comparison has them
	if i < 0 || !strings.HasPrefix(op, "SCMP_CMP_") {
		p.fail("op %s: unknown", printable(op))
	}
	if c.op, c.value = comparison(i), value; c.op == maskedEqual {
		c.mask, c.value = value, valueTwo&value
	}
	return c
}

// A selection is what includes or excludes say.
type selection struct {
	caps, arches []string
	kernel       bool // a minKernel is given, and met
}

func (p *parser) selection() (s selection) {
	p.object(keys{
		"caps":      func() { s.caps = p.texts() },
		"arches":    func() { s.arches = p.texts() },
		"minKernel": func() { s.kernel = p.minKernel() },
	})
	return s
}

// includes reports whether all that is asked is so here.
func (p *parser) includes() bool {
	s := p.selection()
	return len(s.caps) == 0 && (len(s.arches) == 0 || slices.Contains(s.arches, p.machine.native().docker))
}

// excludes reports whether anything that is named is so here.
func (p *parser) excludes() bool {
	s := p.selection()
	return s.kernel || slices.Contains(s.arches, p.machine.native().docker)
}

// oldestKernel is the oldest that pccrun starts sandboxes on, 5.12. A filter
// is made without looking at the kernel that runs, so a rule that hangs on a
// later one cannot be decided.
const oldestMajor, oldestMinor = 5, 12

// minKernel reads "4.8" and reports whether one is asked for at all: what is
// asked must be met by every kernel that pccrun runs on.
func (p *parser) minKernel() bool {
	text := p.text()
	if text == "" {
		return false
	}
	before, after, _ := strings.Cut(text, ".")
	major, err1 := strconv.ParseUint(before, 10, 8)
	minor, err2 := strconv.ParseUint(after, 10, 8)
	switch {
	case err1 != nil || err2 != nil:
		p.fail("%s: want a kernel version like 4.8", printable(text))
	case major > oldestMajor || major == oldestMajor && minor > oldestMinor:
		p.fail("%s: not supported: want %d.%d or older; every kernel that runs pccrun is at least that new", printable(text), oldestMajor, oldestMinor)
	}
	return true
}
