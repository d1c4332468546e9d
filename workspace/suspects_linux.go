package workspace

// A suspect is what a look finds in the tree and compares with what stood.
type suspect struct {
	kind suspectKind
	dir  *dir // of isName the one that holds it, else itself
	rel  string
	why  string // of isName: the pattern
	hit  hit
	home bool // of isName: see [profiles.ProtectRule]
}

type suspectKind uint8

const (
	isName suspectKind = iota // a protected name
	isRepo                    // a directory of git, or a file that leads to one
)

// shuts returns the directories of the tree that cannot be listed, what is hidden or
// read-only among them: a look leaves them as they were.
func (d *dir) shuts(list []string) []string {
	if d.gone {
		return list
	}
	if d.shut {
		return append(list, d.Rel)
	}
	for _, k := range d.Kids {
		list = k.shuts(list)
	}
	return list
}

// suspects calls yield with what the tree holds below d, as far as the command
// can reach it: containing directories first, and of a name that is protected
// nothing within it.
func (c *rules) suspects(d *dir, yield func(suspect)) {
	if d.gone || d.shut || d.State == hidden {
		return
	}
	if d.Git || d.name() == ".git" {
		yield(suspect{kind: isRepo, dir: d, rel: d.Rel})
	}
	if d.State == protected && d.Why != byGit {
		return // read-only inside, or as good as quarantined
	}
	last := ""
	for _, h := range d.Hits {
		switch {
		case h.Class == classGit && h.Kind != Dir:
			yield(suspect{kind: isRepo, dir: d, rel: join(d.Rel, h.Name), hit: h})
		case h.Class == classProtect && c.protect[h.Arg].Home: // another rule of that name may deny it
			if h.Kind != Dir && !inModules(d.Rel) {
				yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.protect[h.Arg].Pattern, hit: h, home: true})
			}
		case h.Class == classProtect && !c.protect[h.Arg].Review && !inModules(d.Rel) && h.Name != last:
			last = h.Name
			yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.protect[h.Arg].Pattern, hit: h})
		case h.Class == classWay && !inModules(d.Rel) && h.Name != last: // where it leads there may be anything, now or later
			last = h.Name
			yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.deep[h.Arg].Whole, hit: h})
		}
	}
	for _, k := range d.Kids {
		c.suspects(k, yield)
	}
}
