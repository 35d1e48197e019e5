/* mma.cuh: products of a warp on tensor cores, and its loads and stores of 8 × 8 matrices in shared memory. */
#ifndef KOPS_KERNELS_HOPPER_MMA_H
#define KOPS_KERNELS_HOPPER_MMA_H

#include <stdint.h>

namespace hopper
{

/* The types of numbers that tensor cores multiply for us. */
enum class element { F16, BF16, TF32 };

/* ---- In f64 ---- */

/*
 * d += A · B, 16 × 8 · 8 × 8. Of lane t: a[i] is row t / 4 + i % 2 * 8, t % 4 + i / 2 * 4 of K; b[i] that of K,
 * column t / 4; d[i] row t / 4 + i / 2 * 8, column t % 4 * 2 + i % 2.
 */
__device__ __forceinline__ void add_products(double (&d)[4], const double (&a)[4], const double (&b)[2])
{
#if __CUDA_ARCH__ >= 900
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
	             "{%8, %9}, {%0, %1, %2, %3};"
	             : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
	             : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#endif
}

#if __CUDA_ARCH__ >= 900

/* ---- Of 16-bit numbers ---- */

/*
 * Four 8 × 8 matrices from shared memory: lane l gives the address of row l % 8 of matrix l / 8, 16 bytes, and
 * gets of each matrix columns l % 4 * 2 and the next of row l / 4. ACROSS: of the transposed matrix.
 */
template <bool ACROSS> __device__ __forceinline__ void load_matrices(uint32_t (&pairs)[4], uint32_t row)
{
	if (ACROSS)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		             : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
		             : "r"(row)
		             : "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		             : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
		             : "r"(row)
		             : "memory");
}

#define ADD_PRODUCTS(type)                                                                                     \
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, "          \
	             "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                           \
	             : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
	             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

/*
 * d += A · B, 16 × 16 · 16 × 8. Of lane t, pairs along K: a[i] is row t / 4 + i % 2 * 8, t % 4 * 2 + i / 2 * 8
 * of K; b[i] that of K, column t / 4; d[i] row t / 4 + i / 2 * 8, column t % 4 * 2 + i % 2.
 */
template <element E>
__device__ __forceinline__ void add_products(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
	if (E == element::F16)
		ADD_PRODUCTS("f16");
	else
		ADD_PRODUCTS("bf16");
}

#undef ADD_PRODUCTS

/* Four 8 × 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t row, const uint32_t (&pairs)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
	             "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
	             : "memory");
}

#endif

} // namespace hopper

#endif
