// Package seatbelt turns a policy into a profile for macOS's sandbox.
//
// It promises:
//   - [Profile] is a pure function: the same policy and survey give the same
//     text on every system, and nothing of the machine is read;
//   - no path of the user stands in the text: each is a parameter, so that no
//     name can end a string and begin a rule;
//   - what the text does not allow is denied. Files and hosts are allowed by rules
//     that exclude each other's places, so their order says nothing; the few rules
//     that deny something in what others allow stand last.
//
// There was no Mac to try any of it on: beliefs.md says what that leaves open. The tests
// read each profile with test/sbpl, which answers for an operation as Seatbelt is believed to.
package seatbelt
