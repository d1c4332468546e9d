// Package changes says what a run changed, and brings it to the host.
//
// A [Set] is how one tree became another; an [Upper] is what a session keeps of its
// overlays. [Upper.Apply] promises that the host's files become all of what was
// selected or stay as they were, also when it is killed anywhere ([Upper.TakeBack]); that what the host changed is found, never overwritten; that no
// link is followed and nothing outside is written; and that what a host tool would
// execute has to be named.
package changes
