#include "textflag.h"

// func entry()
//
// The kernel has put the arguments on the stack, and there they stay.
TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL	$157, AX // prctl
	MOVL	$30, DI  // PR_GET_TIMERSLACK
	SYSCALL
	CMPQ	AX, $0 // an error, or a realtime thread, which has none
	JLE	begin
	CMPQ	AX, $1000000
	JGE	begin
	MOVQ	AX, ·inherited(SB)
	MOVL	$157, AX
	MOVL	$29, DI // PR_SET_TIMERSLACK
	MOVL	$1000000, SI
	SYSCALL

begin:
	JMP	_rt0_amd64_linux(SB)
