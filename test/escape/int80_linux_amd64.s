#include "textflag.h"

// func int80(nr, a, b, c, d, e uint32) int32
TEXT ·int80(SB), NOSPLIT, $0-28
	MOVL nr+0(FP), AX
	MOVL a+4(FP), BX
	MOVL b+8(FP), CX
	MOVL c+12(FP), DX
	MOVL d+16(FP), SI
	MOVL e+20(FP), DI
	INT  $0x80
	MOVL AX, ret+24(FP)
	RET
