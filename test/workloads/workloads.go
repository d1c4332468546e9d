// Package workloads is a set of sample projects, the kind of work that a
// coding agent is given: each with a task in words, the data it starts from,
// the limits that it must do with, and what must be there at the end.
//
// The solutions are scripts, so that the same project can be run directly
// and by an agent whose model follows a script.
package workloads

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Workload is a project and what is to be done in it.
type Workload struct {
	Name     string
	Task     string            // what the agent is asked
	Needs    []string          // programs of the host
	Files    map[string]string // what the project starts from
	Generate func() []byte     // the content of Files[Generated], where it is too large to write down
	Flags    []string          // pccrun's limits
	Solution string            // for bash -eu, in the project
	Want     map[string]string // contents that the files must have at the end
	Output   string            // what the solution must print
}

// Generated is the name of the file that [Workload.Generate] fills.
const Generated = "data"

// Write puts the project into a directory.
func (w Workload) Write(dir string) error {
	for name, content := range w.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	if w.Generate == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, Generated), w.Generate(), 0o644)
}

// Check says whether the project is as the task wants it.
func (w Workload) Check(dir, output string) error {
	if output != w.Output {
		return fmt.Errorf("%s printed %q, want %q", w.Name, output, w.Output)
	}
	for name, want := range w.Want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if string(got) != want {
			return fmt.Errorf("%s: %s is %q, want %q", w.Name, name, got, want)
		}
	}
	return nil
}

// All are the workloads, from the smallest to the heaviest.
var All = []Workload{
	{
		Name:     "hello world",
		Task:     "Write a program that greets the world, and run it.",
		Flags:    []string{"--memory", "256m", "--timeout", "1m"},
		Solution: `printf '#!/bin/sh\necho hello, world\n' > hello && chmod +x hello && ./hello`,
		Want:     map[string]string{"hello": "#!/bin/sh\necho hello, world\n"},
		Output:   "hello, world\n",
	},
	{
		Name:  "calculator with tests",
		Task:  "The calculator's division is wrong. Mend it, so that its tests pass.",
		Needs: []string{"python3"},
		Flags: []string{"--memory", "512m", "--timeout", "2m"},
		Files: map[string]string{
			"calc.py":      "def divide(a, b):\n    return a // b\n",
			"test_calc.py": "import unittest, calc\n\nclass T(unittest.TestCase):\n    def test_divide(self):\n        self.assertEqual(calc.divide(1, 4), 0.25)\n",
		},
		Solution: `! python3 -m unittest -q 2>/dev/null && sed -i 's#//#/#' calc.py && python3 -m unittest -q 2>&1 | tail -1`,
		Want:     map[string]string{"calc.py": "def divide(a, b):\n    return a / b\n"},
		Output:   "OK\n",
	},
	{
		Name:  "a table of 1,000 rows",
		Task:  "Sum the amounts of data by city into report.csv, sorted by city.",
		Needs: []string{"awk"},
		Flags: []string{"--memory", "256m", "--timeout", "1m"},
		Generate: func() []byte {
			var b bytes.Buffer
			for i := range 1000 {
				fmt.Fprintf(&b, "%s,%d\n", [...]string{"Aachen", "Bonn", "Celle"}[i%3], i)
			}
			return b.Bytes()
		},
		Solution: `awk -F, '{ s[$1] += $2 } END { for (c in s) print c "," s[c] }' data | sort > report.csv && wc -l < report.csv`,
		Want:     map[string]string{"report.csv": "Aachen,166833\nBonn,166167\nCelle,166500\n"},
		Output:   "3\n",
	},
	{
		Name:  "document from sources",
		Task:  "Make one page of HTML from the chapters, with a list of contents.",
		Needs: []string{"sed"},
		Flags: []string{"--memory", "256m", "--timeout", "1m"},
		Files: map[string]string{"1.md": "# One\ntext\n", "2.md": "# Two\nmore\n"},
		Solution: `{ echo '<ul>'; sed -n 's#^\# \(.*\)#<li>\1</li>#p' ?.md; echo '</ul>'; sed 's#^\# \(.*\)#<h1>\1</h1>#' ?.md; } > book.html
grep -c '<h1>' book.html`,
		Want:   map[string]string{"book.html": "<ul>\n<li>One</li>\n<li>Two</li>\n</ul>\n<h1>One</h1>\ntext\n<h1>Two</h1>\nmore\n"},
		Output: "2\n",
	},
	{
		Name:  "static site, served",
		Task:  "Build the site and look at it through a server.",
		Needs: []string{"python3"},
		Flags: []string{"--memory", "512m", "--timeout", "2m"},
		Files: map[string]string{"index.html": "<h1>the site</h1>\n"},
		Solution: `python3 - <<'END'
import functools, http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(opener.open(f"http://127.0.0.1:{server.server_port}/").read().decode(), end="")
END`,
		Output: "<h1>the site</h1>\n",
	},
	{
		Name:  "log of 100 MB",
		Task:  "Count the errors in data by hour.",
		Needs: []string{"awk"},
		Flags: []string{"--memory", "512m", "--timeout", "5m"},
		Generate: func() []byte {
			var b bytes.Buffer
			pad := strings.Repeat("x", 70)
			for i := 0; b.Len() < 100<<20; i++ {
				fmt.Fprintf(&b, "%02d:00 %s %s\n", i%24, [...]string{"info", "info", "info", "error"}[i/24%4], pad)
			}
			return b.Bytes()
		},
		Solution: `awk '$2 == "error" { n[$1]++ } END { for (h in n) print h, n[h] }' data | sort > hours && wc -l < hours && head -1 hours`,
		Output:   "24\n00:00 13280\n",
	},
	{
		Name:  "package, built and installed",
		Task:  "Pack the library and use it from the application.",
		Needs: []string{"npm", "node"},
		Flags: []string{"--memory", "1g", "--timeout", "3m"},
		Files: map[string]string{
			"lib/package.json": `{"name":"lib","version":"1.0.0","main":"i.js"}`,
			"lib/i.js":         "exports.word = 'packed'\n",
			"app/package.json": `{"name":"app","version":"1.0.0"}`,
			"app/main.js":      "console.log(require('lib').word)\n",
		},
		Solution: `npm pack --silent ./lib > /dev/null && cd app && npm install --silent --offline --no-audit --no-fund ../lib-1.0.0.tgz && node main.js`,
		Output:   "packed\n",
	},
	{
		Name:  "several services at once",
		Task:  "Start the three workers, let them pass a token round, stop them.",
		Needs: []string{"mkfifo"},
		Flags: []string{"--memory", "256m", "--pids", "64", "--timeout", "1m"},
		Solution: `mkfifo a b c
(read -r t < a; echo "$t-1" > b) & (read -r t < b; echo "$t-2" > c) &
echo token > a; cat c; wait; rm a b c`,
		Output: "token-1-2\n",
	},
}
