package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
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

// ociProfile is linux.seccomp of an OCI runtime configuration, with what Docker and Podman add to it.
type ociProfile struct {
	specs.LinuxSeccomp
	DefaultErrno string    `json:"defaultErrno,omitempty"`
	ArchMap      []archMap `json:"archMap,omitempty"`
	Syscalls     []ociCall `json:"syscalls"`
}

type archMap struct {
	Architecture     specs.Arch   `json:"architecture"`
	SubArchitectures []specs.Arch `json:"subArchitectures"`
}

type ociCall struct {
	specs.LinuxSyscall
	Name     string     `json:"name,omitempty"`
	Errno    string     `json:"errno,omitempty"`
	Comment  string     `json:"comment,omitempty"`
	Includes *selection `json:"includes,omitempty"`
	Excludes *selection `json:"excludes,omitempty"`
}

// A selection says on which machines a rule counts, or does not.
type selection struct {
	Caps      []string `json:"caps"`
	Arches    []string `json:"arches"`
	MinKernel string   `json:"minKernel"`
}

// parseProfile reads an [ociProfile]. goarch is where it will run.
func parseProfile(src []byte, goarch string) (*profile, error) {
	machine, ok := machines(goarch)
	if !ok {
		return nil, fmt.Errorf("architecture %q: want amd64 or arm64", goarch)
	}
	var read ociProfile
	err := json.Unmarshal(src, &read)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("line %d: %w", lineOf(src, syntax.Offset), err)
	case errors.As(err, &kind):
		key := strings.NewReplacer("LinuxSeccomp.", "", "LinuxSyscall.", "").Replace(kind.Field + ": ") // embedded types
		return nil, fmt.Errorf("line %d: %s%s: want %s", lineOf(src, kind.Offset), strings.TrimPrefix(key, ": "), kind.Value, wanted(kind.Type))
	case err != nil:
		return nil, err
	}
	p := &parser{dec: json.NewDecoder(bytes.NewReader(src)), src: src, machine: machine, lines: map[string]int{}, keys: map[string]bool{}, line: 1}
	addKeys(p.keys, "", reflect.TypeFor[ociProfile]())
	p.find("", "")
	return p.profile(&read)
}

func lineOf(src []byte, offset int64) int { return 1 + bytes.Count(src[:offset], []byte("\n")) }

// wanted says what is read into a type.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Struct:
		return "an object"
	}
	return "a whole number from 0 on"
}

// addKeys lists the keys that are read into a type: those of the objects in it follow theirs and a point.
func addKeys(keys map[string]bool, under string, t reflect.Type) {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			keys[under+key] = true
			addKeys(keys, under+key+".", f.Type)
		}
	}
}

// A parser makes rules of what was read, and stops at the first mistake.
type parser struct {
	dec     *json.Decoder
	src     []byte
	machine machine
	keys    map[string]bool // that are known: "syscalls.args.index"
	lines   map[string]int  // in which the value at a path begins: "syscalls[3].args[0].index"
	err     error

	counted int64 // bytes of src in which lines are counted
	line    int
}

// find finds the lines of a value and of all that is in it. What encoding/json passes over is a mistake
// here: a key that is not known, spelled as it is, or that comes twice.
func (p *parser) find(path, key string) {
	token := p.next(path)
	switch token {
	case json.Delim('{'):
		for p.err == nil && p.dec.More() {
			name, _ := p.next("").(string)
			under, below := strings.TrimPrefix(path+"."+printable(name), "."), strings.TrimPrefix(key+"."+name, ".")
			twice := p.lines[under] != 0
			p.lines[under] = p.line
			switch {
			case twice:
				p.fail(under, "given twice")
			case !p.keys[below]:
				p.fail(under, "unknown key")
			}
			p.find(under, below)
		}
	case json.Delim('['):
		for i := 0; p.err == nil && p.dec.More(); i++ {
			p.find(fmt.Sprintf("%s[%d]", path, i), key)
		}
	default:
		return
	}
	p.next("")
}

// next returns the next token of a text that is known to be JSON, and remembers in which line the value at a path begins.
func (p *parser) next(path string) json.Token {
	token, _ := p.dec.Token()
	to := p.dec.InputOffset()
	p.line += bytes.Count(p.src[p.counted:to], []byte("\n"))
	p.counted = to
	if p.lines[path] == 0 {
		p.lines[path] = p.line
	}
	return token
}

// fail keeps the first mistake, with line and key.
func (p *parser) fail(path, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s", p.origin(path), fmt.Sprintf(format, args...))
	}
}

func (p *parser) origin(path string) string {
	return strings.TrimSuffix(fmt.Sprintf("line %d: %s", p.lines[path], path), ": ")
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

// maxErrno is MAX_ERRNO of linux/err.h; the kernel cuts larger ones down to it.
const maxErrno = 4095

// resolve returns the action of a rule, or of the profile. An errno, by number or name, may be given only
// with SCMP_ACT_ERRNO, where it is EPERM if it is not given.
func (p *parser) resolve(path string, name specs.LinuxSeccompAction, errno *uint, errnoName string) Action {
	action, known := map[string]Action{
		"SCMP_ACT_ALLOW": RetAllow, "SCMP_ACT_ERRNO": RetErrno, "SCMP_ACT_KILL": RetKillThread, "SCMP_ACT_KILL_THREAD": RetKillThread,
		"SCMP_ACT_KILL_PROCESS": RetKillProcess, "SCMP_ACT_TRAP": RetTrap, "SCMP_ACT_LOG": RetLog,
	}[string(name)]
	switch {
	case known:
	case name == specs.ActTrace: // a payload may trace its children, and would decide for itself
		p.fail(path, "action SCMP_ACT_TRACE: not supported: a tracer inside would decide")
	case name == specs.ActNotify:
		p.fail(path, "action SCMP_ACT_NOTIFY: not supported: there is no supervisor to ask")
	case name == "":
		p.fail(path, "no action")
	default:
		p.fail(path, "action %s: unknown", printable(string(name)))
	}
	if action != RetErrno {
		if errno != nil || errnoName != "" {
			p.fail(path, "an errno is for SCMP_ACT_ERRNO only")
		}
		return action
	}
	number := uint(1) // EPERM
	if errnoName != "" {
		named, ok := errnoNumber(errnoName)
		if !ok {
			p.fail(path, "errno %s: not known by name here: give its number as errnoRet", printable(errnoName))
		}
		number = named
	}
	if errno != nil {
		if errnoName != "" && *errno != number {
			p.fail(path, "errno %s and errnoRet %d contradict each other", errnoName, *errno)
		}
		if number = *errno; number > maxErrno {
			p.fail(path, "errno %d: want a whole number from 0 to %d", number, maxErrno)
		}
	}
	return Errno(uint16(number))
}

// errnos are those that profiles name; all machines that filters are made for have the numbers of
// asm-generic/errno.h.
const errnos = " EPERM=1 ENOENT=2 ESRCH=3 EIO=5 EBADF=9 EAGAIN=11 ENOMEM=12 EACCES=13 EFAULT=14 ENODEV=19 EINVAL=22 " +
	"ENOTTY=25 ENOSYS=38 EPROTONOSUPPORT=93 ESOCKTNOSUPPORT=94 EOPNOTSUPP=95 ENOTSUP=95 EAFNOSUPPORT=97 "

func errnoNumber(name string) (uint, bool) {
	_, after, known := strings.Cut(errnos, " "+name+"=")
	digits, _, _ := strings.Cut(after, " ")
	number, err := strconv.ParseUint(digits, 10, 16)
	return uint(number), known && err == nil
}

func (p *parser) profile(read *ociProfile) (*profile, error) {
	prof := &profile{fallback: p.resolve("", read.DefaultAction, read.DefaultErrnoRet, read.DefaultErrno)}
	for path, listener := range map[string]string{"listenerPath": read.ListenerPath, "listenerMetadata": read.ListenerMetadata} {
		if listener != "" {
			p.fail(path, "not supported: there is no supervisor to ask")
		}
	}
	for _, flag := range read.Flags {
		// These make no difference here: the filter is loaded before there is a second thread, and speculation
		// is the launcher's choice.
		if flag != "SECCOMP_FILTER_FLAG_TSYNC" && flag != specs.LinuxSeccompFlagSpecAllow {
			p.fail("flags", "flag %s: not supported", printable(string(flag)))
		}
	}
	listed := read.Architectures
	if len(listed) > 0 && len(read.ArchMap) > 0 {
		p.fail("", "architectures and archMap: give one of them")
	}
	for i, m := range read.ArchMap {
		names := append([]specs.Arch{m.Architecture}, m.SubArchitectures...)
		p.arches(fmt.Sprintf("archMap[%d]", i), names) // a mistake counts, also for another machine
		if string(m.Architecture) == p.machine.native().oci {
			listed = append(listed, names...)
		}
	}
	prof.arches = p.arches("architectures", listed)
	for i := range read.Syscalls {
		prof.rules = append(prof.rules, p.rule(fmt.Sprintf("syscalls[%d]", i), &read.Syscalls[i])...)
	}
	return prof, p.err
}

// arches returns what of a list this machine's kernel could run. Its own
// architecture is always among it, as with OCI runtimes.
func (p *parser) arches(path string, names []specs.Arch) []arch {
	list := []arch{p.machine.native()}
	for _, name := range names {
		if !slices.Contains(ociArches, string(name)) {
			p.fail(path, "architecture %s: unknown", printable(string(name)))
		}
		for _, a := range p.machine.arches[1:] {
			if a.oci == string(name) && !slices.Contains(list, a) {
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

// rule returns the rules that an element of syscalls comes to here: none if it is for another machine, or
// for capabilities, which a payload never has.
func (p *parser) rule(path string, c *ociCall) []rule {
	r := rule{names: c.Names, origin: p.origin(path)}
	if c.Name != "" {
		if len(c.Names) > 0 {
			p.fail(path, "name and names: give one of them")
		}
		r.names = []string{c.Name}
	}
	if len(r.names) == 0 || slices.Contains(r.names, "") {
		p.fail(path, "a rule without a system call's name")
	}
	r.action = p.resolve(path, c.Action, c.ErrnoRet, c.Errno)
	for i, a := range c.Args {
		r.conds = append(r.conds, p.condition(fmt.Sprintf("%s.args[%d]", path, i), a))
	}
	own := p.machine.native().docker
	p.minKernel(path+".includes.minKernel", c.Includes) // what is asked must be met by every kernel that pccrun runs on
	if s := c.Includes; s != nil && (len(s.Caps) > 0 || len(s.Arches) > 0 && !slices.Contains(s.Arches, own)) {
		return nil
	}
	if p.minKernel(path+".excludes.minKernel", c.Excludes) || c.Excludes != nil && slices.Contains(c.Excludes.Arches, own) {
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

func (p *parser) condition(path string, a specs.LinuxSeccompArg) condition {
	if a.Index > 5 {
		p.fail(path+".index", "%d: want a whole number from 0 to 5", a.Index)
		return condition{}
	}
	op := string(a.Op)
	i := slices.Index([]string{"EQ", "NE", "LT", "LE", "GT", "GE", "MASKED_EQ"}, strings.TrimPrefix(op, "SCMP_CMP_")) // as comparison has them
	if i < 0 || !strings.HasPrefix(op, "SCMP_CMP_") {
		p.fail(path, "op %s: unknown", printable(op))
	}
	c := condition{arg: a.Index, op: comparison(i), value: a.Value}
	if c.op == maskedEqual {
		c.mask, c.value = a.Value, a.ValueTwo&a.Value
	}
	return c
}

// oldestKernel is the oldest that pccrun starts sandboxes on, 5.12. A filter
// is made without looking at the kernel that runs, so a rule that hangs on a
// later one cannot be decided.
const oldestMajor, oldestMinor = 5, 12

// minKernel reads "4.8" and reports whether one is asked for at all.
func (p *parser) minKernel(path string, s *selection) bool {
	if s == nil || s.MinKernel == "" {
		return false
	}
	before, after, _ := strings.Cut(s.MinKernel, ".")
	major, err1 := strconv.ParseUint(before, 10, 8)
	minor, err2 := strconv.ParseUint(after, 10, 8)
	switch {
	case err1 != nil || err2 != nil:
		p.fail(path, "%s: want a kernel version like 4.8", printable(s.MinKernel))
	case major > oldestMajor || major == oldestMajor && minor > oldestMinor:
		p.fail(path, "%s: not supported: want %d.%d or older; every kernel that runs pccrun is at least that new", printable(s.MinKernel), oldestMajor, oldestMinor)
	}
	return true
}
