#include "textflag.h"

// func cloneOnto(args *cloneArgs, size uintptr, s *copied) (pid, errno uintptr)
//
// The copy starts on the stack that args names, with no caller to return to.
TEXT ·cloneOnto(SB), NOSPLIT, $0-40
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	s+16(FP), R12
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JEQ	copied
	CMPQ	AX, $0xfffffffffffff001
	JLS	parent
	NEGQ	AX
	MOVQ	$0, pid+24(FP)
	MOVQ	AX, errno+32(FP)
	RET

parent:
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET

copied:
	XORL	BP, BP
	SUBQ	$16, SP
	MOVQ	R12, 0(SP)
	CALL	·live(SB)
	INT	$3

// func oldCloneOnto(flags, stack, tls uintptr, s *copied) (pid, errno uintptr)
//
// clone(2) for kernels and filters that do not know clone3.
TEXT ·oldCloneOnto(SB), NOSPLIT, $0-48
	MOVQ	flags+0(FP), DI
	MOVQ	stack+8(FP), SI
	XORL	DX, DX
	XORL	R10, R10
	MOVQ	tls+16(FP), R8
	MOVQ	s+24(FP), R12
	MOVQ	$56, AX // clone
	SYSCALL
	TESTQ	AX, AX
	JEQ	copied
	CMPQ	AX, $0xfffffffffffff001
	JLS	parent
	NEGQ	AX
	MOVQ	$0, pid+32(FP)
	MOVQ	AX, errno+40(FP)
	RET

parent:
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET

copied:
	XORL	BP, BP
	SUBQ	$16, SP
	MOVQ	R12, 0(SP)
	CALL	·live(SB)
	INT	$3
