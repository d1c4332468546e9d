#include "textflag.h"

// func entry()
//
// The kernel has put the arguments on the stack, and there they stay.
TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD	$167, R8 // prctl
	MOVD	$30, R0  // PR_GET_TIMERSLACK
	SVC
	CMP	$0, R0 // an error, or a realtime thread, which has none
	BLE	begin
	MOVD	$1000000, R1
	CMP	R1, R0
	BGE	begin
	MOVD	R0, ·inherited(SB)
	MOVD	$167, R8
	MOVD	$29, R0 // PR_SET_TIMERSLACK
	SVC

begin:
	JMP	_rt0_arm64_linux(SB)
