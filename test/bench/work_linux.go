package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// work is what the program does when it is its own subject: it prints how
// many nanoseconds something took, measured where it ran.
func work(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want cpu, getppid, net|via ADDRESS …, requests URL N AT-ONCE, relay PORT ADDRESS …, or repeat N COMMAND")
	}
	start := time.Now()
	switch {
	case args[0] == "cpu":
		x := uint64(1)
		for range 300_000_000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if x == 0 {
			return fmt.Errorf("xorshift came to zero")
		}
	case args[0] == "getppid":
		for range 2_000_000 {
			syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
		}
	case args[0] == "relay":
		return relay(args[1:])
	case args[0] == "relayed" && len(args) > 1:
		if err := behind(args); err != nil {
			return err
		}
		start = time.Now()
		if err := netWork(args[1], args[2:]); err != nil {
			return err
		}
	case args[0] == "via" && len(args) > 1:
		if err := awaitProxy(); err != nil {
			return err
		}
		start, dialWork = time.Now(), dialVia
		if err := netWork(args[1], args[2:]); err != nil {
			return err
		}
	case args[0] == "net" && len(args) > 1:
		if err := netWork(args[1], args[2:]); err != nil {
			return err
		}
	case args[0] == "requests":
		return requests(args[1:])
	case args[0] == "repeat" && len(args) > 2:
		return repeat(args[1], args[2:])
	default:
		return fmt.Errorf("%s: unknown", args[0])
	}
	fmt.Println(time.Since(start).Nanoseconds())
	return nil
}

func repeat(times string, argv []string) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	for range n {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = os.Stderr
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", argv[0], err)
		}
		fmt.Println(time.Since(start).Nanoseconds())
	}
	return nil
}

// work measures loops and tools inside ÷ outside.
func (b *bench) work(ctx context.Context) ([]figure, error) {
	rounds := max(2, b.rounds/50)
	project := filepath.Join(b.dir, "project")
	if err := b.script(ctx, project, projectScript); err != nil {
		return nil, err
	}
	var figures []figure
	for _, w := range []struct {
		name    string
		goal    float64
		dir     string
		command []string
	}{
		{"CPU-bound loop", 1.01, b.empty, []string{b.worker, "work", "cpu"}},
		{"getppid loop", 1.3, b.empty, []string{b.worker, "work", "getppid"}},
		{"go build of 20 packages", 1.05, project, buildAgain},
		{"npm ci of 10 packages", 1.05, project, []string{"./worker", "work", "repeat", "2", "npm", "ci", "--silent", "--offline", "--no-audit", "--no-fund"}},
	} {
		f, err := b.inside(ctx, w.name, w.goal, w.dir, rounds, w.command...)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	f, err := b.insideWith(ctx, []string{"--overlay", "."}, "go build of 20 packages in an overlay", 1.10, project, rounds, buildAgain...)
	return append(figures, f), err
}

// buildAgain builds what depends on a package that has changed.
var buildAgain = []string{"./worker", "work", "repeat", "2", "bash", "-c", "echo \"package p; const Round = $RANDOM\" > p/r.go && go build ./..."}

// projectScript makes something to build and to install, with warm caches.
const projectScript = `
cp ../empty/worker .
git init -q
export GOCACHE=$PWD/.gocache
printf 'module example.com/m\n\ngo 1.21\n' > go.mod
mkdir p && echo 'package p; const Round = 0' > p/r.go
for i in $(seq 20); do
	mkdir q$i
	{ echo "package q$i; import (\"fmt\"; \"example.com/m/p\")"
	  for j in $(seq 200); do echo "func F$j(x int) string { if x > p.Round { return fmt.Sprint(x, $j) }; return fmt.Sprintf(\"%d\", x*$j) }"; done
	} > q$i/q.go
done
go build ./...
for i in $(seq 10); do
	mkdir -p dep/d$i && printf '{"name":"d%s","version":"1.0.0"}' $i > dep/d$i/package.json
	for j in $(seq 100); do echo "module.exports = $j" > dep/d$i/f$j.js; done
done
npm pack --silent ./dep/* > /dev/null
{ printf '{"name":"p","version":"1.0.0","dependencies":{"d1":"file:d1-1.0.0.tgz"'
  for i in $(seq 2 10); do printf ',"d%s":"file:d%s-1.0.0.tgz"' $i $i; done
  printf '}}'; } > package.json
npm install --silent --offline --no-audit --no-fund
`

// tree measures what a large repository costs a launch, and the tools in it.
func (b *bench) tree(ctx context.Context) ([]figure, error) {
	large := filepath.Join(b.dir, "large")
	perDir := max(1, b.files/1000)
	script := fmt.Sprintf(`
cp ../empty/worker .
git init -q
git config gc.auto 0 # it would go on packing in the background, beside all that is measured
for d in $(seq 1000); do mkdir d$d; for f in $(seq %d); do echo "line $f of $d" > d$d/f$f; done; done
git add -A && git -c user.name=B -c user.email=b@example.com commit -q -m all
git status --short > /dev/null
`, perDir)
	if err := b.script(ctx, large, script); err != nil {
		return nil, err
	}
	entries := 1000*perDir + 1000
	loose, err := b.loose(ctx, large, entries)
	if err != nil {
		return nil, err
	}
	// As a clone has it.
	if err := b.scriptIn(ctx, large, "git repack -adq && git prune-packed -q && git status --short > /dev/null"); err != nil {
		return nil, err
	}
	figures, err := b.scan(ctx, large, entries)
	if err != nil {
		return nil, err
	}
	refused, err := b.refusal(ctx, max(1000, 3*b.files))
	if err != nil {
		return nil, err
	}
	figures = append(figures, loose, refused)
	rounds := max(2, b.rounds/50)
	name := fmt.Sprintf(" on %d files", 1000*perDir)
	status, err := b.inside(ctx, "git status"+name, 1.05, large, rounds, "./worker", "work", "repeat", "3", "git", "status", "--short")
	if err != nil {
		return nil, err
	}
	grep, err := b.inside(ctx, "grep -r"+name, 1.10, large, rounds, "./worker", "work", "repeat", "3", "bash", "-c", "grep -r nowhere . --exclude-dir=.git --exclude=worker || test $? = 1")
	if err != nil {
		return nil, err
	}
	figures = append(figures, status, grep)
	overlaid, err := b.overlay(ctx, large, 1000*perDir)
	return append(figures, overlaid...), err
}

// overlay measures what copy-on-write of the whole of a large repository costs.
func (b *bench) overlay(ctx context.Context, large string, files int) ([]figure, error) {
	whole := []string{"--overlay", "."}
	change := []string{"bash", "-c", "echo changed > new"}
	times, err := b.wall(ctx, []variant{
		{large, append(b.pccrun(), "/bin/true"), nil},
		{large, append(b.pccrun(whole...), "/bin/true"), nil},
		{b.empty, append(b.pccrun(whole...), change...), nil},
		{b.empty, []string{b.program, "diff", "--stat"}, nil},
		{large, append(b.pccrun(whole...), change...), nil},
		{large, []string{b.program, "diff", "--stat"}, nil},
	}, max(3, b.rounds/10))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf(" of %d files", files)
	direct, over, small, diff := median(times[0]), median(times[1]), median(times[3]), median(times[5])
	figures := []figure{
		{name: "launch in an overlay" + name, value: ratio(over, direct), unit: "× direct", goal: 1.2, detail: ms(over) + " to " + ms(direct)},
		{name: "diff of one change in an overlay" + name, value: ratio(diff, small), unit: "× in an empty one", goal: 1.5, detail: ms(diff) + " to " + ms(small)},
	}
	rounds := max(2, b.rounds/100)
	for _, w := range []struct {
		name    string
		command []string
	}{
		{"first git status in an overlay" + name, []string{"./worker", "work", "repeat", "1", "git", "status", "--short"}},
		{"later git status in an overlay" + name, []string{"bash", "-c", "git status --short > /dev/null && exec ./worker work repeat 3 git status --short"}},
	} {
		f, err := b.insideWith(ctx, whole, w.name, 1.10, large, rounds, w.command...)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
		// What of it is the kernel's own: the same layers, and nothing else around them.
		f, err = b.beside(ctx, b.bareOverlay(), whole, w.name+", beside overlayfs alone", 1.10, large, rounds, w.command...)
		if err != nil {
			f = figure{name: w.name + ", beside overlayfs alone", unit: "×", goal: 1.10, why: "no overlayfs for util-linux's unshare here"}
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// bareOverlay runs a command in an overlay of the current directory that
// util-linux makes, as the same user: another would make git read all files.
func (b *bench) bareOverlay() []string {
	uid, gid := os.Getuid(), os.Getgid()
	if b.user != nil {
		uid, gid = int(b.user.UID), int(b.user.GID)
	}
	script := `
d=$(mktemp -d "$1/bare.XXXXXX") && mkdir "$d/up" "$d/work"
mount -t overlay -o "userxattr,volatile,lowerdir=$PWD,upperdir=$d/up,workdir=$d/work" overlay "$PWD"
cd "$PWD"
u=$2 g=$3
shift 3
exec unshare "--map-user=$u" "--map-group=$g" -- "$@"`
	return []string{"unshare", "-Urm", "bash", "-euc", script, "bash", b.dir, strconv.Itoa(uid), strconv.Itoa(gid)}
}

// scan measures launches in the large repository: the first, which knows
// nothing of it, later ones, and with many rules, each beside an empty one.
func (b *bench) scan(ctx context.Context, large string, entries int) ([]figure, error) {
	launch := append(b.pccrun(), "/bin/true")
	var firsts, empties []time.Duration
	for range max(3, b.rounds/30) {
		// What pccrun remembers of a repository lies below the state directory.
		if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
			return nil, err
		}
		for _, v := range []struct {
			dir   string
			times *[]time.Duration
		}{{b.empty, &empties}, {large, &firsts}} {
			cmd := b.command(ctx, v.dir, launch...)
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("launch in %s: %w: %s", v.dir, err, out)
			}
			*v.times = append(*v.times, time.Since(start))
		}
	}
	var rules []string
	binds := append(slices.Clone(bwrap), "--bind", large, large)
	for i := range 500 {
		file := fmt.Sprintf("%s/d%d/f1", large, i+1)
		rules = append(rules, "--read", file)
		binds = append(binds, "--ro-bind", file, file)
	}
	variants := []variant{{b.empty, launch, nil}, {large, launch, nil}, {large, append(b.pccrun(rules...), "/bin/true"), nil}}
	_, noPeer := exec.LookPath("bwrap")
	if noPeer == nil {
		variants = append(variants, variant{large, append(binds, "/bin/true"), nil})
	}
	times, err := b.wall(ctx, variants, max(3, b.rounds/10))
	if err != nil {
		return nil, err
	}
	extra := minus(firsts, empties)
	empty, later, ruled := median(times[0]), median(times[1]), median(times[2])
	name := inRepository(entries)
	peer := figure{name: name + ", 500 rules, beside as many binds", unit: "× bwrap", goal: 1, why: "no bwrap"}
	if noPeer == nil {
		bound := median(times[3])
		peer.value, peer.detail, peer.why = ratio(ruled, bound), ms(ruled)+" to "+ms(bound), ""
	}
	return []figure{
		{name: name + ", first", value: float64(extra.Nanoseconds()) / 1000 / float64(entries), unit: "µs an entry", goal: 0.4, detail: ms(extra) + " beyond an empty one"},
		{name: name + ", later", value: ratio(later, empty), unit: "× empty", goal: 1.5, detail: ms(later) + " to " + ms(empty)},
		{name: name + ", 500 rules", value: ratio(ruled, empty), unit: "× empty", goal: 2, detail: ms(ruled) + " to " + ms(empty)},
		peer,
	}, nil
}

// loose measures later launches where git has packed nothing: each object is a file of its
// own, which is asked at the end whether the run has changed it.
func (b *bench) loose(ctx context.Context, large string, entries int) (figure, error) {
	launch := append(b.pccrun(), "/bin/true")
	times, err := b.wall(ctx, []variant{{b.empty, launch, nil}, {large, launch, nil}}, max(3, b.rounds/10))
	if err != nil {
		return figure{}, err
	}
	empty, later := median(times[0]), median(times[1])
	return figure{name: inRepository(entries) + ", later, nothing packed", value: ratio(later, empty), unit: "× empty", goal: 1.5, detail: ms(later) + " to " + ms(empty)}, nil
}

func inRepository(entries int) string {
	return fmt.Sprintf("launch in a repository of %d entries", entries)
}

// refusal measures how long a workspace that is too much to be looked through waits for
// its refusal: directories alone, of which nothing is known yet.
func (b *bench) refusal(ctx context.Context, directories int) (figure, error) {
	f := figure{name: fmt.Sprintf("a workspace of %d directories is refused after", directories), unit: "s", goal: 2}
	wide := filepath.Join(b.dir, "wide")
	defer os.RemoveAll(wide)
	script := fmt.Sprintf(`for d in $(seq %d); do mkdir -p $(seq -f "$d/%%g" 1000); done`, directories/1000)
	if err := b.script(ctx, wide, script); err != nil {
		return f, err
	}
	var times []time.Duration
	for range max(2, b.rounds/100) {
		if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
			return f, err
		}
		cmd := b.command(ctx, wide, append(b.pccrun(), "/bin/true")...)
		start := time.Now()
		out, err := cmd.CombinedOutput()
		times = append(times, time.Since(start))
		if err == nil { // there is nothing to refuse
			f.why = "looked through in " + ms(median(times))
			return f, nil
		}
		if cmd.ProcessState.ExitCode() != 125 {
			return f, fmt.Errorf("launch in %s: %w: %s", wide, err, out)
		}
	}
	f.value = slices.Max(times).Seconds()
	return f, nil
}

// script makes a directory and runs a script in it, as the user.
func (b *bench) script(ctx context.Context, dir, text string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := b.own(dir); err != nil {
		return err
	}
	return b.scriptIn(ctx, dir, text)
}

// scriptIn runs a script in a directory, as the user.
func (b *bench) scriptIn(ctx context.Context, dir, text string) error {
	cmd := b.command(ctx, dir, "bash", "-eu", "-c", text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("prepare %s: %w: %s", filepath.Base(dir), err, out)
	}
	return nil
}
