//go:build unix && !launcher

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParallelWords holds each word of parallel-cc against what it is in pccrun's, or why it is refused.
func TestParallelWords(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GITHUB_TOKEN", "")
	t.Setenv("PARALLEL_CC_SANDBOX_PROVIDER", "")
	require.NoError(t, os.WriteFile("machine.json", []byte(`{"image": "img", "cpu": 2, "memory": 4096, "disk": 20480, "env": {"B": "2", "A": "1"}}`), 0o600))
	at := func(line string) string { return strings.ReplaceAll(line, "DIR", dir) }
	for line, want := range map[string]string{
		"run --prompt p": "task p",
		"run --repo . --prompt-file f --timeout 30":                           "task --timeout 30m0s --prompt-file DIR/f",
		"sandbox-run --prompt p --timeout 3600":                               "task --timeout 1h0m0s p",
		"run --prompt p --timeout=5 --upload-repo --stream --no-stream":       "task --timeout 5m0s -q p",
		"run --prompt-file f --focus-phase 2":                                 "task --prompt-file DIR/f#phase-2",
		"run --apm-plan f --apm-phase 2":                                      "task --prompt-file DIR/f#phase-2",
		"run --worktree w --prompt p --json --skip-claude-update":             "task --worktree w --json --skip-claude-update p",
		"run --prompt p --native-config s.json --allow @npm -- --x":           "task --settings DIR/s.json --allow @npm p -- --x",
		"run --prompt p --on-success test":                                    "task --check test p",
		"run --prompt p --budget 2 --git-user A --git-email a@b --branch x/y": "task --budget 2 --git-user A --git-email a@b --name x-y p",
		"run --prompt p --branch auto --working-dir /workspace --no-cleanup":  "task p",
		"run --prompt -p":                        "task  -p",
		"run --prompt p --session s":             "task --continue s p",
		"run --reconnect":                        "attach",
		"run --pull":                             "download",
		"run --reconnect s":                      `! no task, and no session "s"`,
		"run --pull --session s":                 `! no task, and no session "s"`,
		"run --prompt p --github-token t":        "task --github-token origin p",
		"run --prompt p --github-token acme/app": "task --github-token acme/app p",
		"run --prompt p --provider docker --docker-image i --docker-network none": "task --docker-image i --provider docker p",
		"run --prompt p --provider e2b --e2b-template t --no-cleanup":             "task --image t --provider e2b --keep 1h p",
		"run --prompt p --provider e2b --no-cleanup --keep 2h":                    "task --keep 2h --provider e2b p",
		"run --prompt p --provider daytona --daytona-target eu":                   "task --region eu --provider daytona p",
		"run --prompt p --provider e2b --sandbox-config machine.json":             "task --provider e2b --env A=1 --env B=2 --image img --size 2cpu,4096m p",
		"run --prompt p --provider docker --sandbox-config machine.json":          "task --provider docker --env A=1 --env B=2 --image img --cpus 2 --memory 4096m --disk 20480m p",
		"run --dry-run":                       "task --dry-run",
		"run --dry-run --json --provider e2b": "task --dry-run --json --provider e2b",
		"run --dry-run=full --provider e2b --e2b-template t --prompt p --keep 1h": "task --try --image t --keep 1h --provider e2b p",
		"resume --checkpoint-id c":                          "task --from c Continue.",
		"resume --checkpoint-id c --prompt p":               "task --from c p",
		"status":                                            "ps",
		"sandbox-status --sandbox-only --json --repo .":     "ps --json --here",
		"logs --follow --tail 5 --save f":                   "logs --follow --tail 5 --save f",
		"download --output d --selective":                   "download --to d",
		"download --filter a,b":                             "download --filter a --filter b --to sandbox-results",
		"kill --no-download --keep-worktree":                "kill --no-download",
		"health":                                            "stats",
		"run --prompt p --on-failure c":                     "! --on-failure: nothing that a task wrote",
		"run --prompt p --docker-network bridge":            "! flag --docker-network: ",
		"run --prompt p --working-dir /x":                   "! flag --working-dir: ",
		"run --prompt p --apm-resume":                       "! --apm-resume: nothing records",
		"run --prompt p --git-live":                         "! --git-live: pccrun pushes nothing",
		"run --prompt p --ssh-key k":                        "! --ssh-key: no key goes inside",
		"run --prompt p --e2b-template t":                   "! flag --e2b-template: the provider is native",
		"run --prompt p --provider e2b --daytona-target eu": "! flag --daytona-target: the provider is e2b",
		"run --prompt p --sandbox-config machine.json":      "! flag --sandbox-config: image",
		"run --prompt p --sandbox-config nosuch":            "! flag --sandbox-config: ",
		"run --prompt p --timeout 0":                        "! flag --timeout: ",
		"run --prompt p --timeout 99999999999999999999":     "! flag --timeout: ",
		"run --prompt p --filter x":                         "! unknown flag",
		"run --prompt p q":                                  "! unexpected argument",
		"run":                                               "! sandbox run: no prompt",
		"resume --prompt p":                                 "! sandbox resume: want a checkpoint",
		"checkpoint":                                        "! sandbox checkpoint: want a task",
		"logs nosuch":                                       `! no task, and no session "nosuch"`,
		"install --all":                                     "! install: pccrun changes neither",
		"run --multi --task a":                              "! --task: many tasks stand in a file",
		"run --npm-registry=r --prompt p":                   "! --npm-registry: no token goes inside",
		"run --prompt merge":                                "task merge",
		"run --multi --task-file f --max-concurrent 2 --fail-fast --output-dir d": "task --file DIR/f --jobs 2 --fail-fast --results DIR/d/summary-report.md",
		"status --repo . --json --session-id nosuch":                              `! no task, and no session "nosuch"`,
		"start": `! sandbox: no "start"`,
	} {
		got, err := (&parallelLine{}).read(strings.Fields(line))
		if refusal, is := strings.CutPrefix(want, "! "); is {
			require.ErrorContains(t, err, refusal, line)
			continue
		}
		require.NoError(t, err, line)
		require.Equal(t, at(want), strings.Join(got, " "), line)
	}
	t.Setenv("PARALLEL_CC_SANDBOX_AUTO_CLEANUP", "false")
	t.Setenv("PARALLEL_CC_LOG_LEVEL", "error")
	got, err := (&parallelLine{}).read(strings.Fields("run --provider e2b --prompt p"))
	require.NoError(t, err)
	require.Equal(t, "task -q --provider e2b --keep 1h p", strings.Join(got, " "))
	t.Setenv("PARALLEL_CC_LOG_LEVEL", "debug")
	got, err = (&parallelLine{}).read(strings.Fields("run --dry-run=full"))
	require.NoError(t, err)
	require.Equal(t, "task --try", strings.Join(got, " "))
}
