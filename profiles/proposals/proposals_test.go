package proposals

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// testPolicy has a home, a workspace in it, and rules as the built-in ones are.
func testPolicy() *profiles.Policy {
	at := func(source string, line int, key string) profiles.Origin {
		return profiles.Origin{Source: source, Line: line, Key: key}
	}
	return &profiles.Policy{
		Home: "/home/u", Homes: []string{"/home", "/root"}, Workspace: "/home/u/w", WorkDir: "/home/u/w",
		Files: []profiles.FileRule{
			{Path: "/", Access: profiles.Read, Origin: at("built-in default", 9, `filesystem."/"`)},
			{Path: "/home", Access: profiles.Hide, Origin: at("default", 0, "homes")},
			{Path: "/tmp", Access: profiles.Private, Origin: at("built-in default", 9, `filesystem."/tmp"`)},
			{Path: "/home/u", Access: profiles.Private, Origin: at("built-in default", 9, `filesystem."~"`)},
			{Path: "/home/u/w", Access: profiles.Write, Origin: at("built-in default", 9, `filesystem."."`)},
			{Path: "/home/u/w", Glob: "**/.env*", Access: profiles.Hide, Origin: at("built-in default", 9, `filesystem."**/.env*"`)},
			{Path: "/home/u/mine", Access: profiles.Hide, Origin: at("/p.jsonc", 4, `filesystem."~/mine"`)},
		},
		Protect: []profiles.ProtectRule{
			{Pattern: ".git/hooks", Origin: at("built-in default", 9, "protect.deny")}, {Pattern: ".bashrc", Origin: at("built-in default", 9, "protect.deny")},
			{Pattern: "mine.sh", Origin: at("/p.jsonc", 5, "protect.deny")},
		},
		Resources: profiles.Resources{Memory: profiles.Limit{Value: 64 << 20}, Pids: profiles.Limit{Value: 50}, Timeout: profiles.Limit{Value: 90e9}},
	}
}

// tree lists what the test says that directories hold.
type tree map[string][]string

func (t tree) list(dir string, most int) (files []string, all bool) {
	for at, names := range t {
		for _, name := range names {
			if p := at + "/" + name; strings.HasPrefix(p, dir+"/") {
				files = append(files, p)
			}
		}
	}
	return files, len(files) <= most
}

func reads(paths ...string) (list []Denial) {
	for _, p := range paths {
		list = append(list, Denial{Deed: Read, What: p, Opened: true, Call: "openat", Program: "/usr/bin/cat", Times: 1})
	}
	return list
}

// named is a read of a path by a link.
func named(link, path string) []Denial {
	list := reads(path)
	list[0].Named = link
	return list
}

// told says each proposal in a line.
func told(list []Proposal) (lines []string) {
	for _, p := range list {
		line := strings.Join(append(p.Keys, p.Key), "|")
		if p.Value != "" {
			line += "=" + p.Value
		}
		switch {
		case p.Never != "":
			line = "never " + line
		case p.Ask != "":
			line = "ask " + line
		}
		lines = append(lines, line)
	}
	return lines
}

func TestMake(t *testing.T) {
	many := func(dir string, n int) (paths, names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("f%02d", i))
			paths = append(paths, dir+"/"+names[i])
		}
		return paths, names
	}
	five, fiveNames := many("/home/u/.config/tool", 5)
	write := func(path string) Denial { return Denial{Deed: Write, What: path, Opened: true, Times: 1} }
	absent := write("/srv/out/new")
	absent.Absent = true
	hidden := write("/home/u/w/.envrc")
	hidden.Absent = true
	dir := Denial{Deed: Read, What: "/home/u/.config", Dir: true, Call: "newfstatat", Times: 1}
	opened := Denial{Deed: Read, What: "/home/u/.config/tool", Dir: true, Opened: true, Times: 1}
	for name, c := range map[string]struct {
		denials []Denial
		tree    tree
		want    []string
	}{
		"a file, twice":                      {reads("/home/u/a", "/home/u/a"), nil, []string{"filesystem|~/a=read"}},
		"caches and private places":          {append(reads("/home/u/.cache/x/y", "/home/u/.npm/z", "/tmp/t", "/home/u/.cached", "/home/u/.config/go/telemetry/mode"), write("/home/u/go/pkg/x")), nil, []string{"filesystem|~/.cached=read"}},
		"by a link":                          {named("/home/u/l", "/home/u/a"), nil, []string{"filesystem|~/l=read"}},
		"by a link, and as it is":            {append(named("/home/u/l", "/home/u/a"), reads("/home/u/a")...), nil, []string{"filesystem|~/a=read", "filesystem|~/l=read"}},
		"by a link, and written":             {append(named("/home/u/l", "/home/u/a"), write("/home/u/a")), nil, []string{"filesystem|~/a=write", "filesystem|~/l=write"}},
		"by a link into what is written":     {append(named("/srv/l", "/srv/out/x"), absent), nil, []string{"filesystem|/srv/l=write", "filesystem|/srv/out=write"}},
		"by a link beside what is written":   {append(named("/srv/l", "/srv/outer"), absent), nil, []string{"filesystem|/srv/l=read", "filesystem|/srv/out=write"}},
		"by a link into what is asked about": {append(named("/home/u/l", "/home/u/.a/x"), Denial{Deed: Write, What: "/home/u/.a/new", Absent: true, Times: 1}), nil, []string{"ask filesystem|~/.a=write", "filesystem|~/l=read"}},
		"a secret by a link":                 {named("/home/u/l", "/home/u/.ssh/id_rsa"), nil, []string{"ask filesystem|~/l=read"}},
		"a link named as a secret":           {named("/home/u/.ssh/x", "/home/u/a"), nil, []string{"ask filesystem|~/.ssh/x=read"}},
		"pccrun's own by a link":             {named("/home/u/l", "/home/u/state/pccrun/x"), nil, []string{"never filesystem|~/l=read"}},
		"read and write":                     {append(reads("/home/u/a"), write("/home/u/a")), nil, []string{"filesystem|~/a=write"}},
		"two of a directory":                 {reads(five[0], five[1]), tree{"/home/u/.config/tool": fiveNames}, []string{"filesystem|~/.config/tool/f00=read", "filesystem|~/.config/tool/f01=read"}},
		"many of a directory":                {reads(five...), tree{"/home/u/.config/tool": fiveNames}, []string{"filesystem|~/.config/tool=read"}},
		"many, among far more":               {reads(five[:3]...), tree{"/home/u/.config/tool": append(fiveNames, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")}, []string{"filesystem|~/.config/tool/f00=read", "filesystem|~/.config/tool/f01=read", "filesystem|~/.config/tool/f02=read"}},
		"many, beside a secret":              {reads(five[:3]...), tree{"/home/u/.config/tool": append(fiveNames[:3:3], "api_token")}, []string{"filesystem|~/.config/tool/f00=read", "filesystem|~/.config/tool/f01=read", "filesystem|~/.config/tool/f02=read"}},
		"many of the home":                   {reads("/home/u/a", "/home/u/b", "/home/u/c"), tree{"/home/u": {"a", "b", "c"}}, []string{"filesystem|~/a=read", "filesystem|~/b=read", "filesystem|~/c=read"}},
		"directories passed by":              {append(reads("/home/u/.config/tool/x"), dir), tree{"/home/u/.config": {"tool/x"}}, []string{"filesystem|~/.config/tool/x=read"}},
		"an opened directory":                {append(reads(five[0]), opened), tree{"/home/u/.config/tool": fiveNames}, []string{"filesystem|~/.config/tool=read"}},
		"one with a secret":                  {[]Denial{opened}, tree{"/home/u/.config/tool": {"x.pem"}}, []string{"ask filesystem|~/.config/tool=read"}},
		"the home":                           {[]Denial{{Deed: Read, What: "/home/u", Dir: true, Opened: true}}, nil, []string{"ask filesystem|/home/u=read"}},
		"the root":                           {[]Denial{{Deed: Read, What: "/", Dir: true, Opened: true}}, nil, []string{"ask filesystem|/=read"}},
		"a key":                              {reads("/home/u/.ssh/id_ed25519"), nil, []string{"ask filesystem|~/.ssh/id_ed25519=read"}},
		"a cloud's":                          {reads("/home/u/.aws/config"), nil, []string{"ask filesystem|~/.aws/config=read"}},
		"what a built-in rule hides":         {reads("/home/u/w/a/.env"), nil, []string{"ask filesystem|~/w/a/.env=read"}},
		"what the user hides":                {reads("/home/u/mine"), nil, []string{"ask filesystem|~/mine=read"}},
		"somebody else's":                    {reads("/home/v/x"), nil, []string{"ask filesystem|/home/v/x=read"}},
		"a new file":                         {[]Denial{absent}, nil, []string{"filesystem|/srv/out=write"}},
		"pccrun's own":                       {reads("/home/u/state/pccrun/owed/a"), nil, []string{"never filesystem|~/state/pccrun/owed/a=read"}},
		"a new name that is hidden":          {[]Denial{hidden}, nil, []string{"ask filesystem|~/w/.envrc=write"}},
		"the system":                         {[]Denial{write("/etc/hosts")}, nil, []string{"ask filesystem|/etc/hosts=write"}},
		"a start-up file":                    {[]Denial{write("/home/u/.bashrc")}, nil, []string{"ask filesystem|~/.bashrc=write"}},
		"somebody's settings":                {[]Denial{write("/home/u/.config/editor/init.lua")}, nil, []string{"ask filesystem|~/.config/editor/init.lua=write"}},
		"a file of the home":                 {[]Denial{write("/home/u/notes/a")}, nil, []string{"filesystem|~/notes/a=write"}},
		"a program of the home":              {[]Denial{write("/home/u/bin/a")}, nil, []string{"ask filesystem|~/bin/a=write"}},
		"a hook":                             {[]Denial{write("/home/u/w/.git/hooks/x")}, nil, []string{"ask protect|review|.git/hooks"}},
		"what the profile protects":          {[]Denial{write("/home/u/w/mine.sh")}, nil, []string{"never protect|review|mine.sh"}},
		"a pattern for a name":               {reads("/home/u/*"), nil, []string{"never filesystem|~/*=read"}},
		"a hostile name":                     {reads("/home/u/x\", \"/\": \"write"), nil, []string{"filesystem|~/x\", \"/\": \"write=read"}},
		"lines in a name":                    {reads("/home/u/x\n\"/\": \"write\","), nil, []string{"never filesystem|~/x\n\"/\": \"write\",=read"}},
		"a socket":                           {[]Denial{{Deed: Socket, What: "/run/postgresql/.s.PGSQL.5432"}}, nil, []string{"network|sockets|/run/postgresql/.s.PGSQL.5432"}},
		"a daemon's":                         {[]Denial{{Deed: Socket, What: "/run/docker.sock"}}, nil, []string{"ask network|sockets|/run/docker.sock"}},
		"an agent's":                         {[]Denial{{Deed: Socket, What: "/tmp/ssh-x/agent.1"}}, nil, []string{"ask network|sockets|/tmp/ssh-x/agent.1"}},
		"a host with its port":               {[]Denial{{Deed: Host, What: "a.example", Lookup: true}, {Deed: Host, What: "a.example:22", Call: "a connection"}}, nil, []string{"network|allow|a.example:22"}},
		"a host that was looked up":          {[]Denial{{Deed: Host, What: "a.example", Lookup: true}}, nil, []string{"network|allow|a.example"}},
		"a service of the machine":           {[]Denial{{Deed: Host, What: "5432", Local: true}}, nil, []string{"ask network|local|5432"}},
		"a host that is denied":              {[]Denial{{Deed: Host, What: "a.example", Denied: "b"}}, nil, []string{"never network|allow|a.example"}},
		"a variable":                         {[]Denial{{Deed: Variable, What: "TOKEN"}}, nil, []string{"ask environment|pass|TOKEN"}},
		"memory":                             {[]Denial{{Deed: Limit, What: "memory"}}, nil, []string{"resources|memory=128m"}},
		"processes":                          {[]Denial{{Deed: Limit, What: "pids"}}, nil, []string{"resources|pids=100"}},
		"time":                               {[]Denial{{Deed: Limit, What: "timeout"}}, nil, []string{"resources|timeout=3m0s"}},
		"no limit":                           {[]Denial{{Deed: Limit, What: "disk"}}, nil, []string{"never resources|disk=0"}},
	} {
		got := Make(testPolicy(), c.denials, Machine{List: c.tree.list, Memory: 1 << 30, File: "/p.jsonc", Own: []string{"/home/u/state/pccrun"}})
		require.Equal(t, c.want, told(got), name)
		for _, p := range got {
			if p.Never != "" {
				continue
			}
			_, err := profiles.Amend("p", "", "", []profiles.Edit{p.Edit})
			require.NoError(t, err, name)
		}
	}
	paths, names := many("/srv", 1000)
	require.Len(t, Make(testPolicy(), reads(paths...), Machine{List: tree{"/srv": append(names, many2(9000)...)}.list}), maxOf+1, "bounded")
}

func many2(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("other%d", i))
	}
	return names
}
