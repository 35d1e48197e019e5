/* f16x3.cc: kernels/gemm/f16x3.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/f16x3.cu"

DYNAMIC_SHARED(char, shared, 16)

extern "C" bool emulated_pairs_fit(const void *workspace)
{
	const findings *of_a = (const findings *)workspace, *of_b = of_a + 256 / sizeof(findings);

	return survey{{(findings *)of_a, (findings *)of_b}, {}, {}, true, false}.of_all() == PAIRS;
}
