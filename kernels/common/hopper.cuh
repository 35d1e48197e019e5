/*
 * hopper.cuh: the instructions of sm_90 and sm_90a that CUDA C++ has no words for. Shared memory is named by
 * its 32-bit address, a barrier by the address of its 8 bytes.
 */
#ifndef KOPS_KERNELS_HOPPER_H
#define KOPS_KERNELS_HOPPER_H

#include <stdint.h>

#include "common/descriptor.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KOPS_HOPPER 1
#endif

namespace hopper
{

/* What is multiplied. */
enum class element { F16, BF16, TF32 };

/* That are written and read together. */
struct alignas(16) words {
	uint64_t first, second;
};

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes that nobody reads again soon: they take no room in L1. */
__device__ __forceinline__ uint4 load_once(const uint4 *from)
{
#if __CUDA_ARCH__ >= 900
	uint4 v;

	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
	             : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
	             : "l"(from)
	             : "memory");
	return v;
#else
	return *from;
#endif
}

/* NaN if one is. */
__device__ __forceinline__ float larger(float a, float b)
{
#if __CUDA_ARCH__ >= 800
	float c;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
	return c;
#else
	return a > b || a != a ? a : b;
#endif
}

__device__ __forceinline__ double larger(double a, double b)
{
	return a > b || a != a ? a : b;
}

/* ---- Products of a warp, in f64 ---- */

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

/* ---- Products of a warp, of 16-bit numbers ---- */

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

/* ---- Words in global memory that other blocks write while this one looks ---- */

__device__ __forceinline__ void store_relaxed(words *to, const words &w)
{
	asm volatile("{\n"
	             ".reg .b128 both;\n"
	             "mov.b128 both, {%1, %2};\n"
	             "st.relaxed.gpu.global.b128 [%0], both;\n"
	             "}" ::"l"(to),
	             "l"(w.first), "l"(w.second)
	             : "memory");
}

__device__ __forceinline__ words load_relaxed(const words *from)
{
	words w;

	asm volatile("{\n"
	             ".reg .b128 both;\n"
	             "ld.relaxed.gpu.global.b128 both, [%2];\n"
	             "mov.b128 {%0, %1}, both;\n"
	             "}"
	             : "=l"(w.first), "=l"(w.second)
	             : "l"(from)
	             : "memory");
	return w;
}

/* ---- Sums in global memory that only one thread touches ---- */

/* Not waited for. A thread's are added in its order, so that sums are the same in every run, and its
 * load_global() sees them all. Denormal sums become 0. */
__device__ __forceinline__ void add_to_global(float4 *to, float4 x)
{
	asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y),
	             "f"(x.z), "f"(x.w)
	             : "memory");
}

__device__ __forceinline__ float4 load_global(const float4 *from)
{
	float4 x;

	asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
	             : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
	             : "l"(from)
	             : "memory");
	return x;
}

/* ---- Barriers in shared memory: `count` arrivals and the bytes expected complete a phase ---- */

__device__ __forceinline__ void barrier_init(uint32_t barrier, unsigned count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* Makes what barrier_init() wrote visible to the cluster and to the copy engine. */
__device__ __forceinline__ void barriers_ready()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and expects so many bytes more. */
__device__ __forceinline__ void barrier_expect(uint32_t barrier, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
	             : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives at the barrier that lies at the same address in this block of the cluster. */
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, unsigned block)
{
	asm volatile("{\n"
	             ".reg .b32 there;\n"
	             "mapa.shared::cluster.u32 there, %0, %1;\n"
	             "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
	             "}" ::"r"(barrier),
	             "r"(block)
	             : "memory");
}

__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* Waits for the phase of this parity to complete. */
__device__ __forceinline__ void barrier_wait(uint32_t barrier, unsigned parity)
{
	asm volatile("{\n"
	             ".reg .pred done;\n"
	             "again:\n"
	             "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
	             "@!done bra again;\n"
	             "}" ::"r"(barrier),
	             "r"(parity)
	             : "memory");
}

/* ---- Copies into shared memory ---- */

/* By cp.async: one element, or a zero. */
__device__ __forceinline__ void copy_element(uint32_t to, const float *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0)
	             : "memory");
}

/* 16 bytes, both addresses multiples of that; zeros behind the first `there` bytes. */
__device__ __forceinline__ void copy_piece(uint32_t to, const void *from, int there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there)
	             : "memory");
}

/* ---- Bulk copies into shared memory; 16 bytes is the unit of everything ---- */

__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, unsigned bytes, uint32_t barrier)
{
	asm volatile(
	    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
	    "l"(from), "r"(bytes), "r"(barrier)
	    : "memory");
}

/* To the same address in every block of the cluster in `blocks`; each one's own barrier counts the bytes. */
__device__ __forceinline__ void copy_bulk_to(uint16_t blocks, uint32_t to, const void *from, unsigned bytes,
                                             uint32_t barrier)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
	             "[%0], [%1], %2, [%3], %4;" ::"r"(to),
	             "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
	             : "memory");
}

/* ---- Boxes of a matrix that a tensor map describes, at (x, y, z), x along its lines ---- */

__device__ __forceinline__ void prefetch_map(const void *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void copy_box(uint32_t to, const void *map, int x, int y, int z, uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	             "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
	             : "memory");
}

/* As copy_bulk_to(). */
__device__ __forceinline__ void copy_box_to(uint16_t blocks, uint32_t to, const void *map, int x, int y, int z,
                                            uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
	             ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
	             : "memory");
}

/* From shared memory; what lies outside the matrix is left out. Belongs to the next stores_commit(). */
__device__ __forceinline__ void store_box(const void *map, int x, int y, int z, uint32_t from)
{
	asm volatile(
	    "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
	    "r"(x), "r"(y), "r"(z), "r"(from)
	    : "memory");
}

__device__ __forceinline__ void stores_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until shared memory has been read by all stores that this thread committed but the last LEFT commits. */
template <int LEFT> __device__ __forceinline__ void stores_await_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

/* What this thread wrote to shared memory is there for the copy engine and the tensor cores. */
__device__ __forceinline__ void show_to_engines()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Four 8 × 8 matrices of 16-bit numbers: lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t row, const uint32_t (&pairs)[4])
{
	asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
	             "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
	             : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float value)
{
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_pair(uint32_t address, float x, float y)
{
	asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

/* ---- Clusters, warpgroups ---- */

__device__ __forceinline__ unsigned cluster_rank()
{
	unsigned rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

__device__ __forceinline__ void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
	                 : "memory");
}

/* As cluster_sync(), but what a block wrote before is not yet there for the others. */
__device__ __forceinline__ void cluster_meet()
{
	asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Of so many threads of this block, by one of its 16 barriers; 0 is that of __syncthreads(). */
template <int THREADS> __device__ __forceinline__ void threads_sync(int barrier)
{
	asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

/* The same place in another block of the cluster. */
__device__ __forceinline__ uint32_t address_in(unsigned block, uint32_t address)
{
	uint32_t there;

	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
	return there;
}

__device__ __forceinline__ void store_there(uint32_t address, float value)
{
	asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_there(uint32_t address, float4 v)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y),
	             "f"(v.z), "f"(v.w)
	             : "memory");
}

__device__ __forceinline__ float4 load_shared_quad(uint32_t address)
{
	float4 v;

	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
	             : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
	             : "r"(address)
	             : "memory");
	return v;
}

__device__ __forceinline__ float load_shared(uint32_t address)
{
	float value;

	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
	return value;
}

#endif

#ifdef KOPS_HOPPER

/* This many registers per thread from here on; all threads of the warpgroup. */
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

/* For all that were committed but the last LEFT commits. */
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

#define SUMS_8(d, i)                                                                                           \
	"+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),            \
	    "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_32(d, i) SUMS_8(d, i), SUMS_8(d, i + 8), SUMS_8(d, i + 16), SUMS_8(d, i + 24)
#define SUMS_64(d, i) SUMS_32(d, i), SUMS_32(d, i + 32)
#define SUMS_96(d)    SUMS_64(d, 0), SUMS_32(d, 64)
#define SUMS_128(d)   SUMS_64(d, 0), SUMS_64(d, 64)

#define NAMES_32                                                                                               \
	"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                               \
	"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
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

/*
 * add_products: sums = A · B + (keep ? sums : 0): A 64 × 32 bytes of K, B as many columns as there are sums,
 * times 2. Of thread t of the warp w: sums[4j + 2h + i] is row 16w + t / 4 + 8h, column 8j + t % 4 * 2 + i.
 * ACROSS: matrix_across_at().
 *
 * add_products_from: the same of tf32, with A in registers: of thread t of the warp w row 16w + t / 4 + i % 2 *
 * 8, t % 4 + i / 2 * 4 of K.
 *
 * n0 … n5: the operands behind the sums.
 */
#define DEFINE_PRODUCTS(SUMS, cols, names, sums, n0, n1, n2, n3, n4, n5)                                       \
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
	}

DEFINE_PRODUCTS(32, "64", NAMES_32, SUMS_32(d, 0), "%32", "%33", "%34", "%35", "%36", "%37")
DEFINE_PRODUCTS(64, "128", NAMES_64, SUMS_64(d, 0), "%64", "%65", "%66", "%67", "%68", "%69")
DEFINE_PRODUCTS(96, "192", NAMES_96, SUMS_96(d), "%96", "%97", "%98", "%99", "%100", "%101")
DEFINE_PRODUCTS(128, "256", NAMES_128, SUMS_128(d), "%128", "%129", "%130", "%131", "%132", "%133")

#undef DEFINE_PRODUCTS
#undef ADD_PRODUCTS
#undef A_4
#undef NAMES_128
#undef NAMES_96
#undef NAMES_64
#undef NAMES_32
#undef SUMS_128
#undef SUMS_96
#undef SUMS_64
#undef SUMS_32
#undef SUMS_8

#endif

} // namespace hopper

#endif
