package main

const syncUsage = `usage: pccrun sync pack [--dry-run] [--json] [--allow-secret FINGERPRINT] DIR
       pccrun sync extract [--accept PATH] [--trust] [--json] DIR

pack writes what of DIR may leave this machine to standard output, as a plain
tar; extract reads one from standard input into DIR, all of it or nothing.

  --dry-run                   list what would go, and what not and why
  --allow-secret FINGERPRINT  let a file go in which this secret was found
  --max-size SIZE             of all files together (default 500m)
  --max-files N               how many names (default 100000)
  --accept PATH               extract a protected name too, or what is below it
  --trust                     the archive is your own: hold nothing back
  --json                      print what was done as JSON; of pack with --dry-run

What never goes: .git, keys and .env files by their names, what .gitignore,
.e2bignore or .pccrunignore leave out, links that lead out, and files in which a
secret is found. extract replaces nothing, and refuses what could reach out of
DIR or be taken for something else; docs/sync.md has the list.

Exit status: 0 if all went; 1 if a secret was left out, a member was refused
(then nothing is extracted) or a protected name held back; 125 if it could not
be tried.

example: pccrun sync pack . | ssh host pccrun sync extract --trust project
`
