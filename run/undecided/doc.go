// Package undecided has what earlier runs left in quarantine, and nobody has decided about, there in the workspace's next
// sandbox: else git, for one, would take its files for deleted.
//
// A directory is mounted, from where it lies in its session, on a stub like those of [workspace.Stubs], and stays a finding
// of that session. Of two runs the one that makes the stub has it. Of what is not mounted it names the files that git takes for deleted.
package undecided
