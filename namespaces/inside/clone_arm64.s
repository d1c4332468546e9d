#include "textflag.h"

// func cloneOnto(args *cloneArgs, size uintptr, s *copied) (pid, errno uintptr)
//
// The copy starts on the stack that args names, with no caller to return to.
TEXT ·cloneOnto(SB), NOSPLIT, $0-40
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	s+16(FP), R19
	MOVD	$435, R8 // clone3
	SVC
	CBZ	R0, copied
	CMN	$4095, R0
	BCC	parent
	NEG	R0, R0
	MOVD	ZR, pid+24(FP)
	MOVD	R0, errno+32(FP)
	RET

parent:
	MOVD	R0, pid+24(FP)
	MOVD	ZR, errno+32(FP)
	RET

copied:
	MOVD	ZR, R29
	SUB	$32, RSP
	MOVD	R19, 8(RSP)
	CALL	·live(SB)
	BRK

// func oldCloneOnto(flags, stack, tls uintptr, s *copied) (pid, errno uintptr)
//
// clone(2) for kernels and filters that do not know clone3.
TEXT ·oldCloneOnto(SB), NOSPLIT, $0-48
	MOVD	flags+0(FP), R0
	MOVD	stack+8(FP), R1
	MOVD	ZR, R2
	MOVD	tls+16(FP), R3
	MOVD	ZR, R4
	MOVD	s+24(FP), R19
	MOVD	$220, R8 // clone
	SVC
	CBZ	R0, copied
	CMN	$4095, R0
	BCC	parent
	NEG	R0, R0
	MOVD	ZR, pid+32(FP)
	MOVD	R0, errno+40(FP)
	RET

parent:
	MOVD	R0, pid+32(FP)
	MOVD	ZR, errno+40(FP)
	RET

copied:
	MOVD	ZR, R29
	SUB	$32, RSP
	MOVD	R19, 8(RSP)
	CALL	·live(SB)
	BRK
