package main

const reviewUsage = `usage: pccrun review [SESSION] [--json] [--quiet]
       pccrun review [SESSION] --accept [PATH…] [--json]

Shows what a session left that you should look at before you go on working
there, with diffs: protected names that appeared and were set aside, what new
repositories would have run, and files for review that changed.

  --accept  put back what was set aside: all, or the paths that follow
  --quiet   no diffs
  --json    print it as JSON

Nothing is put back over what stands there by now, and nothing through a link.
-- stands before a PATH that begins with a dash.

SESSION is an id as pccrun ps shows it, the start of one, or the start of the
eight digits at its end; without it, the newest that left something in the
workspace that you stand in.
`
