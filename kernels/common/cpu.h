/*
 * cpu.h: what the CPU kernels of all ops share: their tables, the reference kernel, CPU_CLONES, and an exp()
 * for loops that become vectors.
 */
#ifndef KOPS_CPU_H
#define KOPS_CPU_H

#include <string.h>

#include "kernel.h"

/* gemm_cpu_kernels, …: the kernels of each op (kernels/<op>/cpu.c). */
#define X(name) extern const struct kernel_list name##_cpu_kernels;
#include "ops.def"
#undef X

/*
 * Compiles a function for AVX-512, AVX2 and the base; one is chosen when the program is loaded. Sanitizers
 * cannot run that choice (an ifunc resolver); other compilers and machines get the base only.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(KOPS_SANITIZE)
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_CLONES
#endif

#define CPU_PRAGMA(text) _Pragma(#text)

/*
 * Goes before a loop that finds the largest or the smallest: CPU_EXTREMES(reduction(max : peak)). Vectors of
 * clang would begin with the largest finite number, which infinities alone never reach.
 */
#ifdef __clang__
#define CPU_EXTREMES(clauses)
#else
#define CPU_EXTREMES(clauses) CPU_PRAGMA(omp simd clauses)
#endif

/*
 * Returns p with exp(t) = 2^n · p for |t| < 2^21, and n modulo 2^32. n = round(t / ln 2); p is the Taylor
 * polynomial of degree 7 in the rest, |r| <= ln 2 / 2, where its error is 6e-9. ln 2 comes in two parts (Cody
 * and Waite).
 */
static inline __attribute__((always_inline)) float cpu_exp_parts(float t, uint32_t *ret_n)
{
	float shifted = t * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: n in the low bits */
	float n = shifted - 12582912.0f;
	float r = (t - n * 0.693359375f) - n * -2.12194440e-4f;
	float p = 1.0f / 5040;
	uint32_t bits;

	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	memcpy(&bits, &shifted, sizeof bits);
	*ret_n = bits - 0x4b400000u;
	return p;
}

/* 2^n, for n from -126 to 127, modulo 2^32. */
static inline __attribute__((always_inline)) float cpu_power_of_two(uint32_t n)
{
	uint32_t bits = (n + 127u) << 23;
	float power;

	memcpy(&power, &bits, sizeof power);
	return power;
}

/* exp(t) for t <= 0, relative error below 2 ulp; 0 under -87.33, where results are subnormal; NaN stays. */
static inline __attribute__((always_inline)) float cpu_exp_negative(float t)
{
	uint32_t n;
	float p = cpu_exp_parts(t, &n);

	return t < -87.33f ? 0.0f : p * cpu_power_of_two(n);
}

/* Rounds up to a multiple of 64 bytes, a cache line and a vector; UINT64_MAX on overflow. */
static inline uint64_t cpu_align(uint64_t bytes)
{
	return bytes > UINT64_MAX - 63 ? UINT64_MAX : (bytes + 63) & ~(uint64_t)63;
}

/*
 * For time_ns of kernels: the number of threads that work on so many parts, as a divisor; ns that one thread
 * waits for the lines of a view; ns that so many parts wait for the lines of all views. Measured on a Xeon of
 * 2023.
 */
double cpu_threads(double parts);
double cpu_view_ns(const struct view *v);
double cpu_memory_ns(const struct op_args *args, double parts);

/* The kernel that runs op->reference: plain loops, float64, one thread. */
bool cpu_reference_supports(const struct op_args *args, const char **ret_why_not);
double cpu_reference_ns(const struct op_args *args);
int cpu_reference_launch(const struct op_args *args, const struct launch *launch);

/* Does what part_convert (kernel.h) says, on the CPU. One thread. */
int cpu_convert(const struct view *from, const struct view *to, const struct launch *launch);

#define CPU_REFERENCE_KERNEL(types) CPU_REFERENCE_KERNEL_OF(types, cpu_reference_ns)
#define CPU_REFERENCE_KERNEL_OF(types, ns)                                                                     \
	{                                                                                                      \
		.name = "reference", .idea = "plain loops, float64 accumulation, one thread: the oracle",      \
		.dtypes = (types), .takes = "any strides", .supports = cpu_reference_supports,                 \
		.time_ns = (ns), .carries = true, .launch = cpu_reference_launch                               \
	}

#endif
