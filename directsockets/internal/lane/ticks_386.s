// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func ticks() uint64
TEXT ·ticks(SB), NOSPLIT, $0-8
	RDTSC
	MOVL AX, ret_lo+0(FP)
	MOVL DX, ret_hi+4(FP)
	RET
