//go:build linux

package escape

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// TestInterrupted ends runs that are under way, and wants documents that are whole
// and say so; the control is a run that ends by itself.
func TestInterrupted(t *testing.T) {
	needCage(t)
	for _, row := range []struct {
		name   string
		signal unix.Signal
		status int
	}{{"to the end", 0, 1}, {"SIGINT", unix.SIGINT, 130}, {"SIGTERM", unix.SIGTERM, 143}, {"SIGHUP", unix.SIGHUP, 129}} {
		t.Run(row.name, func(t *testing.T) {
			home := shortDir(t)
			file := func(ending string) string { return filepath.Join(home, "out"+ending) }
			args := []string{"__escape", "--wrap", marking(home), "--id", "FS-001,FS-002,KS-040", "--parallel", "1", "--json"}
			for _, f := range formats {
				args = append(args, "--report", file(f.ending))
			}
			if row.signal != 0 {
				args[4] = "FS-001,FS-002,LCH-026,NS-018" // the third takes its time
			}
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
			var out, told strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &told
			require.NoError(t, cmd.Start())
			if row.signal != 0 {
				await.Until(t, "a probe is under way", func() bool { return marked(home) != "" })
				require.NoError(t, cmd.Process.Signal(row.signal))
			}
			_ = cmd.Wait()
			require.Equal(t, row.status, cmd.ProcessState.ExitCode(), "%v: %s", cmd.ProcessState, told.String())
			skipped := 0
			for line := range strings.Lines(out.String()) {
				var r struct{ ID, Verdict, Reason string }
				require.True(t, strings.HasSuffix(line, "\n"), line)
				require.NoError(t, json.Unmarshal([]byte(line), &r), line)
				if r.Reason == "interrupted by "+row.name {
					require.Equal(t, string(VerdictSkipped), r.Verdict)
					skipped++
				}
			}
			require.Equal(t, row.signal != 0, skipped > 0, out.String())
			for _, f := range formats {
				text, err := os.ReadFile(file(f.ending))
				require.NoError(t, err)
				require.Equal(t, row.signal != 0, strings.Contains(string(text), "interrupted by "+row.name), "%s: %s", f.ending, text)
			}
			require.Equal(t, row.signal != 0, strings.Contains(told.String(), "interrupted by "+row.name))

			log, err := os.ReadFile(file(".sarif"))
			require.NoError(t, err)
			require.True(t, json.Valid(log), "%s", log)
			cases, err := os.ReadFile(file(".xml"))
			require.NoError(t, err)
			require.NoError(t, xml.Unmarshal(cases, new(struct{})))
		})
	}
}

// TestReportsComeWhole looks at the places of reports before there is one: what
// stood there stands, and what did not does not.
func TestReportsComeWhole(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "old.tap"), filepath.Join(dir, "new.tap")
	require.NoError(t, os.WriteFile(old, []byte(strings.Repeat("old\n", 1000)), 0o600))
	o := &options{reports: lines{old, fresh}}
	files, err := o.openReports()
	require.NoError(t, err)
	require.NoFileExists(t, fresh)
	text, err := os.ReadFile(old)
	require.NoError(t, err)
	require.Len(t, text, 4000)
	for _, f := range files {
		require.NoError(t, f.write(&Report{}))
		text, err := os.ReadFile(f.path)
		require.NoError(t, err)
		require.Regexp(t, `^TAP version 13\n1\.\.0\nBail out! .*\n$`, string(text))
	}
	o.reports = lines{filepath.Join(dir, "none", "x.tap")}
	_, err = o.openReports()
	require.Error(t, err)
}

// TestReaderGoesAway ends the one who reads the output while probes run: the
// suite must be there to remove what it made.
func TestReaderGoesAway(t *testing.T) {
	needCage(t)
	home := shortDir(t)
	cmd := exec.Command("/proc/self/exe", "__escape", "--wrap", marking(home), "--id", "FS-001,NS-018")
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home)
	reader, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	require.NoError(t, reader.Close())
	require.Error(t, cmd.Wait(), "control: nobody read what it wrote")
	site := marked(home)
	require.NotEmpty(t, site, "control: it has run")
	require.NoDirExists(t, site)
}

// marking is a launcher that protects nothing, and notes what it runs.
func marking(dir string) string {
	return `sh -c 'echo "$@" >>` + dir + `/mark; exec "$@"' sh`
}

// marked is the directory of the run whose launcher was started; "" if none was.
func marked(dir string) string {
	text, _ := os.ReadFile(dir + "/mark")
	return regexp.MustCompile(`/\S+/escape-[0-9a-f]{12}`).FindString(string(text))
}
