package main

const specUsage = `usage: pccrun spec [--bundle DIR] [--terminal] [--dry-run] [--json] [FLAGS] -- COMMAND [ARG…]

Writes what pccrun run would do with these flags as an OCI runtime bundle:
config.json, an empty rootfs, and the files that stand in for hidden ones.

  --bundle DIR   where; made if it is not there (default: the current directory)
  --terminal     the command gets a terminal
  --dry-run      print the plan, and write nothing
  --json         print what was written, or the plan, as JSON

What the format cannot express is lost. Each loss is named on stderr and in an
annotation of the file (org.pccrun.loss.NAME). The bundle is a snapshot: it
names the files of this host as they are now, and the runtime looks them up by
name. It holds the values of the command's environment. Who writes it should
be who runs it: as root the command is given an identity that is not root.

example: pccrun spec --bundle /tmp/b -- make test && runc run --bundle /tmp/b NAME
`
