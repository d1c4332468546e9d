package main

const syncUsage = `usage: pccrun sync pack [--dry-run] [--json] [--allow-secret FINGERPRINT] DIR
       pccrun sync extract [--accept PATH] [--trust] [--json] DIR

pack writes the files of DIR without secrets to standard output, as a tar archive.
extract reads one from standard input into DIR: all of it or nothing.

  --dry-run                   list which files would be packed, and why not
  --allow-secret FINGERPRINT  pack a file although it contains this secret
  --max-size SIZE             limit of all files together (default 500m)
  --max-files N               limit of the number of names (default 100000)
  --accept PATH               extract this protected path too
  --trust                     you made the archive: extract protected names too
  --json                      print the result as JSON; for pack with --dry-run

pack leaves out .git, keys and .env files by name, the names in .gitignore,
.e2bignore and .pccrunignore, links to the outside, and files that contain a
secret. extract overwrites nothing, and refuses names that could reach out of DIR
or be mistaken for others; docs/sync.md has the list.

Exit status: 0 if everything was packed or extracted; 1 if a secret or a protected
name was left out, or a member was refused (then nothing is extracted); 125 if the
command line is wrong or an archive could not be read or written.

example: pccrun sync pack . | ssh host pccrun sync extract --trust project
`
