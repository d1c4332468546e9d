// Package escape holds a sandbox against the promises that it makes.
//
// A [Probe] is one thing that an attacker would try, done to canaries that the
// suite made for it: a file, a port, a process, a socket, a terminal. Every
// probe runs twice. The control runs in a cage of the suite's own, without the
// protection, and must succeed; a probe whose control does not succeed proves
// nothing and is reported as vacuous. The other run is inside the sandbox, and
// must fail. A sentinel, a nonce that only the payload can echo, tells a
// sandbox that held from one that never started.
//
// The payloads are functions of this very program, which runs itself inside
// with a hidden verb: they need nothing but the workspace, no shell and no
// toolchain. Where only the host can see the truth (a canary file changed, a
// process still alive, a name looked up) an observer outside decides.
//
// What the suite promises about itself: it touches only what it made, it runs
// nothing without protection outside a cage, it reaches no address but loopback
// except in a network namespace of its own with its own listeners behind it,
// its time and memory are bounded, and it leaves nothing behind.
package escape
