package main

const doctorUsage = `usage: pccrun doctor [--fix [--yes]] [--json] [--all]

Says what this machine can keep of what pccrun promises, and what would mend
the rest. What it says of launches it has tried: the default profile, the
strict one, and each layer beside a launch without it.

  --fix   show what would mend it, and do that if you agree; by sudo, unless
          you are root
  --yes   with --fix: do not ask
  --all   every guarantee and layer, not only those with something to say
  --json  print what was found as JSON

Of API keys the names of the variables are shown, and nothing else. Without a
terminal nothing is asked, and nothing changed without --yes.

Exit status: 0 if a run with the default profile works; 1 if not.
`
