package main

const doctorUsage = `usage: pccrun doctor [--fix [--yes]] [--json] [--all]

Prints which guarantees this machine can keep, and how to fix the rest. It tests
them with real launches: of the profiles default and strict, and of each
protection, with and without it.

  --fix   show the commands that fix it, and run them if you agree; with sudo,
          unless you are root
  --yes   with --fix: do not ask
  --all   list every guarantee and protection, not only those with a problem
  --json  print the result as JSON

Of API keys only the names of the variables are printed. Without a terminal,
--fix changes nothing unless --yes is given.

Exit status: 0 if a run with the default profile works; 1 if not.
`
