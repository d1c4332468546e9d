//go:build !launcher

package main

const reviewUsage = `usage: pccrun review [SESSION] [--json] [--quiet]
       pccrun review [SESSION] --accept [PATH…] [--json]
       pccrun review --save SESSION PATH DEST

Shows, with diffs, what you should check before you work on in the workspace:
the findings in quarantine (protected names that the command made, and what git
would execute), git settings that were not saved, and changed files that the
policy lists for review. It also lists unsaved files: those that the command
wrote to private directories.

  --accept  restore findings and save git settings: all, or those of the paths
            that follow; without SESSION, just what was shown last, and nothing
            while a later session was not shown
  --save    copy unsaved files at PATH to DEST, which must be a directory or not
            exist; a session keeps 64 MiB of them
  --quiet   no diffs
  --json    print the result as JSON

Nothing that exists is overwritten, and no link is followed. Put -- before a PATH
that begins with a dash.

SESSION is an id from pccrun ps, the start of one, or the start of the eight
digits at its end. The default is the newest session that left something in the
current workspace.
`
