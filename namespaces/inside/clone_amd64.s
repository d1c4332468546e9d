#include "textflag.h"

// func cloneOnto(nr, a, b, c, d, e uintptr, s *copied) (pid, errno uintptr)
//
// The copy starts on a stack of its own, with no caller to return to.
TEXT ·cloneOnto(SB), NOSPLIT, $0-72
	MOVQ	nr+0(FP), AX
	MOVQ	a+8(FP), DI
	MOVQ	b+16(FP), SI
	MOVQ	c+24(FP), DX
	MOVQ	d+32(FP), R10
	MOVQ	e+40(FP), R8
	MOVQ	s+48(FP), R12
	SYSCALL
	TESTQ	AX, AX
	JEQ	copied
	CMPQ	AX, $0xfffffffffffff001
	JLS	parent
	NEGQ	AX
	MOVQ	$0, pid+56(FP)
	MOVQ	AX, errno+64(FP)
	RET

parent:
	MOVQ	AX, pid+56(FP)
	MOVQ	$0, errno+64(FP)
	RET

copied:
	XORL	BP, BP
	SUBQ	$16, SP
	MOVQ	R12, 0(SP)
	MOVQ	·entry(SB), R13 // which comes back here for the command: the linker allows no such circle
	MOVQ	R12, AX // as Go's own calling convention has it, where the entry is the function itself
	XORPS	X15, X15
	XORL	R14, R14 // no goroutine
	CALL	R13
	INT	$3

DATA	·entry(SB)/8, $·live(SB)
GLOBL	·entry(SB), NOPTR, $8
