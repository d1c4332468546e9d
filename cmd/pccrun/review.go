package main

const reviewUsage = `usage: pccrun review [SESSION] [--json] [--quiet]
       pccrun review [SESSION] --accept [PATH…] [--json]
       pccrun review --save SESSION PATH DEST

Shows what a session left that you should look at before you go on working
there, with diffs: protected names that appeared and were set aside, what new
repositories would have run, keys of git's configuration that were not taken
over, and files for review that changed; and names what it wrote to private
directories, which are gone.

  --accept  put back what was set aside, and set keys that were not taken over:
            all, or the paths that follow
  --save    copy what is gone at PATH, or below, to DEST, which must not exist
            yet, or be a directory; 64 MiB are kept of a session
  --quiet   no diffs
  --json    print it as JSON

Nothing is put back over what stands there by now, and nothing through a link.
-- stands before a PATH that begins with a dash.

SESSION is an id as pccrun ps shows it, the start of one, or the start of the
eight digits at its end; without it, the newest that left something in the
workspace that you stand in.
`
