// Package sbpl reads profiles of macOS's sandbox and says what they allow. It is an oracle for tests,
// where there is no Mac: nothing of pccrun's imports it.
//
// It promises:
//   - [Parse] refuses each form, operation and filter that [Evaluate] has no model of, and each that
//     is known not to do what it seems to say;
//   - [Evaluate] answers from the text alone, and under every order of precedence that is reported of
//     Seatbelt; where two of them differ it is an error.
//
// seatbelt/beliefs.md names the source of each belief.
package sbpl
