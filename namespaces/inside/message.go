//go:build linux

package inside

import "unsafe"

// The launcher and pid 1 speak over one SOCK_SEQPACKET pair. Each message is
// one packet:
//
//	launcher                                  pid 1
//	    <-- Descriptors (SCM_RIGHTS)              pty master, listeners
//	    <-- Failed  A: step  B: errno             the set-up ended here
//	    --> Go  A: length of the table            answers each Await
//	    <-- Descriptors, Watched                  the listener of the filter that asks, if it could be had; then the word
//	    <-- NotExecuted  B: errno                 no path of the command could be started
//	    --> Signal  A: number  B: to whom         forward a signal
//	    --> Resume  A: in the foreground          after a stop
//	    <-- Stopped  A: signal                    Ctrl-Z inside; with a terminal the next is told after Resume
//	    --> Exec (SCM_RIGHTS)  A: first op            another command starts
//	            B: length  C: which
//	    --> ExecSignal  A: number  B: which       to its process group
//	    <-- ExecGone  A: wait status  B: which    it has ended
//	            C: errno, if it could not be started
//	    <-- Done                                  a remount watcher has carried out what it was told
//	    <-- Left                                  the command is gone and others are not: pid 1 waits for an answer, not for long
//	    --> Seen                                  the answer
//	    <-- Exited  A: wait status  B: cause      the command is gone; pid 1 ends, and all with it
//	            C: 1 if nobody else was left
type Message struct {
	Kind    Kind
	A, B, C int32
}

const messageSize = unsafe.Sizeof(Message{})

func (m Message) bytes() []byte { return (*[messageSize]byte)(unsafe.Pointer(&m))[:] }

// Kind says what a [Message] means.
type Kind int32

// The kinds of messages, see [Message].
const (
	Descriptors Kind = iota + 1
	Failed
	Go
	NotExecuted
	Signal
	Resume
	Stopped
	Exited
	Done
	Left
	Seen
	Watched
	Exec
	ExecSignal
	ExecGone
)

// To whom a signal goes: B of [Signal].
const (
	ToCommand int32 = iota // the command's process alone
	ToGroup                // the command's process group, as a terminal would
)

// Why the command is gone: B of [Exited].
const (
	ByItself   int32 = iota
	ByDeadline       // the wall time was over
)
