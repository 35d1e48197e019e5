/* wgmma.cuh: products of a warpgroup, where KOPS_HOPPER says that the GPU has them: on Hopper. */
#ifndef KOPS_KERNELS_HOPPER_WGMMA_H
#define KOPS_KERNELS_HOPPER_WGMMA_H

#include <stdint.h>

#include "common/hopper/mma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KOPS_HOPPER 1
#endif

namespace hopper
{

#ifdef KOPS_HOPPER

/* Gives each thread N registers from here on; all threads of the warpgroup call it. */
template <int N> __device__ __forceinline__ void fewer_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void more_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- Products of a warpgroup ---- */

__device__ __forceinline__ void products_begin()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits for all that were committed but the last LEFT commits. */
template <int LEFT = 0> __device__ __forceinline__ void products_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Keeps the compiler from moving uses of the sums past this point. */
template <int N> __device__ __forceinline__ void settle(float (&sums)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+f"(sums[i])::"memory");
}

/* The same of numbers that products take from registers. */
template <int N> __device__ __forceinline__ void settle(uint32_t (&pairs)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		asm volatile("" : "+r"(pairs[i])::"memory");
}

#define SUMS_8(d, i)                                                                                           \
	"+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),            \
	    "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(d, i) SUMS_8(d, i), SUMS_8(d, i + 8), SUMS_8(d, i + 16), SUMS_8(d, i + 24)
#define SUMS_48(d)    SUMS_32(d, 0), SUMS_8(d, 32), SUMS_8(d, 40)
#define SUMS_64(d, i) SUMS_32(d, i), SUMS_32(d, i + 32)
#define SUMS_96(d)    SUMS_64(d, 0), SUMS_32(d, 64)
#define SUMS_128(d)   SUMS_64(d, 0), SUMS_64(d, 64)

#define NAMES_32                                                                                               \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                               \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_48 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64                                                                                               \
	NAMES_32 ", "                                                                                          \
	         "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "            \
	         "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96                                                                                               \
	NAMES_64 ", "                                                                                          \
	         "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "            \
	         "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_128                                                                                              \
	NAMES_96                                                                                               \
	", "                                                                                                   \
	"%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "         \
	"%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* The instruction; its last three operands are those behind the sums. across: the immediates, where it has any.
 */
#define ADD_PRODUCTS(shape, types, names, a, b, keep, across)                                                  \
	"{\n"                                                                                                  \
	".reg .pred p;\n"                                                                                      \
	"setp.ne.b32 p, " keep ", 0;\n"                                                                        \
	"wgmma.mma_async.sync.aligned." shape ".f32." types " {" names "}, " a ", " b ", p, 1, 1" across ";\n" \
	"}"

#define A_4(a)                                                                                                 \
	"r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),                    \
	    "r"(__float_as_uint(a[3]))
#define PAIRS_4(a) "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

/*
 * add_products: sums = A · B + (keep ? sums : 0): A 64 × 32 bytes of K, B as many columns as there are sums,
 * times 2. Of thread t of the warp w: sums[4j + 2h + i] is row 16w + t / 4 + 8h, column 8j + t % 4 * 2 + i.
 * ACROSS: matrix_across_at().
 *
 * add_products_from: the same of tf32, with A in registers: of thread t of the warp w row 16w + t / 4 + i % 2 *
 * 8, t % 4 + i / 2 * 4 of K. Or of 16-bit numbers, in pairs along K: t % 4 * 2 + i / 2 * 8 of K.
 *
 * n0 … n6: the operands behind the sums.
 */
#define DEFINE_PRODUCTS(SUMS, cols, names, sums, n0, n1, n2, n3, n4, n5, n6)                                   \
	template <element E, bool A_ACROSS = false, bool B_ACROSS = false>                                     \
	__device__ __forceinline__ void add_products(float(&d)[SUMS], uint64_t a, uint64_t b, int keep)        \
	{                                                                                                      \
		static_assert(E != element::TF32 || (!A_ACROSS && !B_ACROSS), "tf32 has K along the lines");   \
		if constexpr (E == element::F16)                                                               \
			asm volatile(                                                                          \
			    ADD_PRODUCTS("m64n" cols "k16", "f16.f16", names, n0, n1, n2, ", " n3 ", " n4)     \
			    : sums                                                                             \
			    : "l"(a), "l"(b), "r"(keep), "n"((int)A_ACROSS), "n"((int)B_ACROSS));              \
		else if constexpr (E == element::BF16)                                                         \
			asm volatile(                                                                          \
			    ADD_PRODUCTS("m64n" cols "k16", "bf16.bf16", names, n0, n1, n2, ", " n3 ", " n4)   \
			    : sums                                                                             \
			    : "l"(a), "l"(b), "r"(keep), "n"((int)A_ACROSS), "n"((int)B_ACROSS));              \
		else                                                                                           \
			asm volatile(ADD_PRODUCTS("m64n" cols "k8", "tf32.tf32", names, n0, n1, n2, "")        \
			             : sums                                                                    \
			             : "l"(a), "l"(b), "r"(keep));                                             \
	}                                                                                                      \
	__device__ __forceinline__ void add_products_from(float(&d)[SUMS], const float(&a)[4], uint64_t b,     \
	                                                  int keep)                                            \
	{                                                                                                      \
		asm volatile(ADD_PRODUCTS("m64n" cols "k8", "tf32.tf32", names,                                \
		                          "{" n0 ", " n1 ", " n2 ", " n3 "}", n4, n5, "")                      \
		             : sums                                                                            \
		             : A_4(a), "l"(b), "r"(keep));                                                     \
	}                                                                                                      \
	template <element E, bool B_ACROSS = false>                                                            \
	__device__ __forceinline__ void add_products_from(float(&d)[SUMS], const uint32_t(&a)[4], uint64_t b,  \
	                                                  int keep)                                            \
	{                                                                                                      \
		static_assert(E != element::TF32, "tf32 is given as float");                                   \
		if constexpr (E == element::F16)                                                               \
			asm volatile(ADD_PRODUCTS("m64n" cols "k16", "f16.f16", names,                         \
			                          "{" n0 ", " n1 ", " n2 ", " n3 "}", n4, n5, ", " n6)         \
			             : sums                                                                    \
			             : PAIRS_4(a), "l"(b), "r"(keep), "n"((int)B_ACROSS));                     \
		else                                                                                           \
			asm volatile(ADD_PRODUCTS("m64n" cols "k16", "bf16.bf16", names,                       \
			                          "{" n0 ", " n1 ", " n2 ", " n3 "}", n4, n5, ", " n6)         \
			             : sums                                                                    \
			             : PAIRS_4(a), "l"(b), "r"(keep), "n"((int)B_ACROSS));                     \
	}

DEFINE_PRODUCTS(32, "64", NAMES_32, SUMS_32(d, 0), "%32", "%33", "%34", "%35", "%36", "%37", "%38")
DEFINE_PRODUCTS(48, "96", NAMES_48, SUMS_48(d), "%48", "%49", "%50", "%51", "%52", "%53", "%54")
DEFINE_PRODUCTS(64, "128", NAMES_64, SUMS_64(d, 0), "%64", "%65", "%66", "%67", "%68", "%69", "%70")
DEFINE_PRODUCTS(96, "192", NAMES_96, SUMS_96(d), "%96", "%97", "%98", "%99", "%100", "%101", "%102")
DEFINE_PRODUCTS(128, "256", NAMES_128, SUMS_128(d), "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef DEFINE_PRODUCTS
#undef ADD_PRODUCTS
#undef PAIRS_4
#undef A_4
#undef NAMES_128
#undef NAMES_96
#undef NAMES_64
#undef NAMES_48
#undef NAMES_32
#undef SUMS_128
#undef SUMS_96
#undef SUMS_64
#undef SUMS_48
#undef SUMS_32
#undef SUMS_8

#endif

} // namespace hopper

#endif
