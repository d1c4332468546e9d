#include "textflag.h"

// func cloneOnto(nr, a, b, c, d, e uintptr, s *copied) (pid, errno uintptr)
//
// The copy starts on a stack of its own, with no caller to return to.
TEXT ·cloneOnto(SB), NOSPLIT, $0-72
	MOVD	nr+0(FP), R8
	MOVD	a+8(FP), R0
	MOVD	b+16(FP), R1
	MOVD	c+24(FP), R2
	MOVD	d+32(FP), R3
	MOVD	e+40(FP), R4
	MOVD	s+48(FP), R19
	SVC
	CBZ	R0, copied
	CMN	$4095, R0
	BCC	parent
	NEG	R0, R0
	MOVD	ZR, pid+56(FP)
	MOVD	R0, errno+64(FP)
	RET

parent:
	MOVD	R0, pid+56(FP)
	MOVD	ZR, errno+64(FP)
	RET

copied:
	MOVD	ZR, R29
	SUB	$32, RSP
	MOVD	R19, 8(RSP)
	MOVD	·entry(SB), R20 // which comes back here for the command: the linker allows no such circle
	MOVD	R19, R0 // as Go's own calling convention has it, where the entry is the function itself
	MOVD	ZR, g
	CALL	(R20)
	BRK

DATA	·entry(SB)/8, $·live(SB)
GLOBL	·entry(SB), NOPTR, $8
