//go:build !launcher

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/run"
)

// syncFlags are what the verb was told.
type syncFlags struct {
	dryRun, json, trust bool
	allow, accept       []string
	limits              filesync.Limits
	hides               func(name string) (why string) // as in a [filesync.Up]
}

func syncVerb(args []string) int {
	var f syncFlags
	words, err := options(args, flags{
		"--dry-run": &f.dryRun, "--json": &f.json, "--trust": &f.trust,
		"--allow-secret": func(name string) error { f.allow = append(f.allow, name); return nil },
		"--accept": func(name string) error {
			f.accept = append(f.accept, filepath.ToSlash(filepath.Clean(name)))
			return nil
		},
		"--max-size": func(text string) (err error) {
			if f.limits.Bytes, err = profiles.ParseSize(text); err == nil && f.limits.Bytes < 1 {
				err = errors.New("want at least one byte")
			}
			return err
		},
		"--max-files": func(text string) (err error) {
			if f.limits.Files, err = strconv.Atoi(text); err != nil || f.limits.Files < 1 {
				err = errors.New("want a number from 1 on")
			}
			return err
		},
	})
	if err == nil {
		err = checkSync(words, map[string]bool{"--dry-run": f.dryRun, "--json": f.json, "--trust": f.trust, "--allow-secret": f.allow != nil,
			"--accept": f.accept != nil, "--max-size": f.limits.Bytes != 0, "--max-files": f.limits.Files != 0})
	}
	if err != nil {
		return failSession(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if words[0] == "pack" {
		return syncPack(ctx, words[1], f)
	}
	return syncExtract(ctx, words[1], f)
}

// checkSync says what is wrong with a command line.
func checkSync(words []string, given map[string]bool) error {
	const more = "see pccrun help sync"
	switch {
	case len(words) == 0 || words[0] != "pack" && words[0] != "extract":
		return misuse("sync: want pack or extract", more)
	case len(words) == 1:
		return misuse("sync "+words[0]+": want a directory", "pccrun sync "+words[0]+" .")
	case len(words) > 2:
		return misuse("unexpected argument "+quote(words[2]), more)
	}
	others := []string{"--accept", "--trust"}
	if words[0] == "extract" {
		others = []string{"--dry-run", "--allow-secret"}
	}
	for _, name := range others {
		if given[name] {
			return misuse("flag "+name+": not with "+words[0], more)
		}
	}
	if words[0] == "pack" && given["--json"] && !given["--dry-run"] {
		return misuse("flag --json: goes with --dry-run", "the archive is on standard output")
	}
	return nil
}

func syncPack(ctx context.Context, dir string, f syncFlags) int {
	if !f.dryRun && isTerminal(os.Stdout) {
		return fail("sync pack: standard output is a terminal", "pccrun sync pack "+dir+" > FILE, or a pipe")
	}
	host := profiles.ThisHost()
	home, _, _ := host.HomeDir() // without one, no file of the user's own leaves anything out
	dir, err := filepath.Abs(dir)
	if err != nil {
		return failSync("sync pack", err)
	}
	kept, by, err := profiles.UploadIgnore(home)
	if err != nil {
		return failSync("sync pack", err)
	}
	up := filesync.Up{Limits: f.limits, Git: run.RunGit(dir), Kept: kept, KeptBy: by, Hides: f.hides, Allow: f.allow, Excludes: filesync.UserIgnore(home, host.Getenv("XDG_CONFIG_HOME"))}
	shown := messages.NewProgress("packing")
	up.Progress = shown.Show
	tree, err := filesync.Open(ctx, dir, up)
	if err != nil {
		return failSync("sync pack", err)
	}
	defer tree.Close()
	shown.Files, shown.Bytes = len(tree.Manifest.Items)-1, tree.Bytes
	var sent *filesync.Sent
	var raw, small int64
	if f.dryRun {
		sent, raw, small, err = weigh(ctx, tree)
	} else {
		out := bufio.NewWriterSize(os.Stdout, 1<<20)
		if sent, err = tree.Write(ctx, out); err == nil {
			err = out.Flush()
		}
	}
	shown.End()
	if err != nil {
		return failSync("sync pack", err)
	}
	if f.dryRun {
		printPacked(sent, raw, small, f.json)
	} else {
		for _, l := range sent.Left() {
			if l.Notable() {
				say("left out: " + l.Path + ": " + l.Why)
			}
		}
	}
	for _, finding := range sent.Findings {
		say("secret: " + finding.String())
	}
	if len(sent.Findings) > 0 {
		mends := "remove the secret from the file"
		if f.hides == nil { // no run takes that flag
			mends += "; if it is no secret: --allow-secret " + sent.Findings[0].Fingerprint
		}
		say("hint: " + mends)
		return failed
	}
	return 0
}

// weigh packs for nobody, and returns how large the archive is, plain and as zstd has it.
func weigh(ctx context.Context, tree *filesync.Tree) (sent *filesync.Sent, raw, small int64, err error) {
	packed := &counting{}
	enc, err := filesync.Compress(packed)
	if err != nil {
		return nil, 0, 0, err
	}
	all := &counting{to: enc}
	sent, err = tree.Write(ctx, all)
	return sent, all.n, packed.n, errors.Join(err, enc.Close())
}

type counting struct {
	to io.Writer
	n  int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	if c.to == nil {
		return len(b), nil
	}
	return c.to.Write(b)
}

// printPacked says what would go and what not, with sizes.
func printPacked(sent *filesync.Sent, raw, small int64, asJSON bool) {
	if asJSON {
		files := each(sent.Manifest.Items, func(item filesync.Item) object {
			return object{{"path", item.Path}, {"kind", item.Entry.Kind.String()}, {"size", item.Entry.Size}}
		})
		left := each(sent.Left(), func(l filesync.Left) object {
			return object{{"path", l.Path}, {"why", l.Why}, {"size", l.Size}, {"directory", l.Dir}}
		})
		findings := each(sent.Findings, func(s filesync.Finding) object {
			return object{{"path", s.File}, {"line", s.Line}, {"rule", s.Rule}, {"fingerprint", s.Fingerprint}}
		})
		printJSON(object{{"files", files}, {"left", left}, {"secrets", findings}, {"bytes", sent.Bytes}, {"archive", raw}, {"compressed", small}})
		return
	}
	printf("to pack: %d files, %s; as a tar %s, compressed %s\n", sent.Files, sizeText(sent.Bytes), sizeText(raw), sizeText(small))
	for _, item := range sent.Manifest.Items[1:] {
		size := ""
		if item.Entry.Size > 0 {
			size = "\t" + sizeText(item.Entry.Size)
		}
		printf("  %s%s\n", printable(item.Path), size)
	}
	printf("stays: %d\n", len(sent.Left()))
	for _, l := range sent.Left() {
		name, size := printable(l.Path), ""
		if l.Dir {
			name += "/"
		}
		if l.Size > 0 {
			size = "\t" + sizeText(l.Size)
		}
		printf("  %s%s\t%s\n", name, size, printable(l.Why))
	}
}

func syncExtract(ctx context.Context, dir string, f syncFlags) int {
	if isTerminal(os.Stdin) {
		return fail("sync extract: standard input is a terminal", "pccrun sync extract "+dir+" < FILE, or a pipe")
	}
	shown := messages.NewProgress("extracting")
	down := filesync.Down{Limits: f.limits, Accept: f.accept, Trust: f.trust, Protect: filesync.Protection(profiles.DefaultProtect()), Progress: shown.Show}
	// A read of standard input is not ended by a signal: what has been made must go all the same.
	r, w := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{os.Stdin}, make([]byte, 256<<10))
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { r.CloseWithError(ctx.Err()) })
	from, err := filesync.Uncompressed(r)
	var out *filesync.Extracted
	if err == nil {
		out, err = filesync.Extract(ctx, dir, from, down)
	}
	shown.End()
	var refusal *filesync.RefusedError
	if errors.As(err, &refusal) {
		fail("sync extract: "+err.Error(), "nothing was extracted")
		return failed
	}
	if err != nil {
		return failSync("sync extract", err)
	}
	if f.json {
		held := each(out.NotExtracted, func(h filesync.Withheld) object { return object{{"path", h.Path}, {"why", h.Why}} })
		printJSON(object{{"files", out.Files}, {"directories", out.Dirs}, {"links", out.Links}, {"bytes", out.Bytes}, {"withheld", held}})
	}
	for _, h := range out.NotExtracted {
		say("not extracted: " + h.Path + ": protected (" + h.Why + ")")
	}
	if len(out.NotExtracted) > 0 {
		say("hint: a host tool would execute it: read it (tar -xOf FILE), then: --accept " + out.NotExtracted[0].Path + "; for an archive that you made: --trust")
		return failed
	}
	return 0
}

// failSync prints why it could not be done.
func failSync(verb string, err error) int {
	if errors.Is(err, context.Canceled) {
		return fail(verb + ": interrupted")
	}
	return fail(verb+": "+inWords(err), profiles.Hint(err))
}
