/*
 * tensor_peer: what a GPU's tensor cores do at most. Two warpgroups of each multiprocessor run wgmma on random
 * operands in shared memory, and nothing else, as fma.cu does for the FMA units. The best of some runs of a
 * millisecond or two, in GFLOP/s, for each type that kernels multiply. Prints one JSON document; exit code 77
 * where the GPU has no wgmma. For Hopper: compile it for sm_90a.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		int failed = (int)(call);                                                                      \
		if (failed) {                                                                                  \
			fprintf(stderr, "tensor_peer: %s failed with %d\n", #call, failed);                    \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

#define THREADS   256
#define LINE      128 /* bytes of a tile's row: four steps of wgmma */
#define A_BYTES   (64 * LINE)
#define B_BYTES   (256 * LINE)
#define IN_FLIGHT 16 /* wgmma between two waits */
#define ROUNDS    400
#define RUNS      20

#define D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64(i) D16(i), D16(i + 16), D16(i + 32), D16(i + 48)
#define N10(t)                                                                                                 \
	"%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define N40(t, u, v, w) N10(t) N10(u) N10(v) N10(w)
#define NAMES           N40(, 1, 2, 3) N40(4, 5, 6, 7) N40(8, 9, 10, 11) "%120, %121, %122, %123, %124, %125, %126, %127"

/* d += a · b, 64 × 256; both operands along K, swizzled by 128 bytes. */
#define WGMMA(shape, types, transposed)                                                                        \
	asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {" NAMES                            \
	             "}, %128, %129, 1, 1, 1" transposed ";\n"                                                 \
	             : D64(0), D64(64)                                                                         \
	             : "l"(a), "l"(b))

enum type { F16, BF16, TF32 };

#if __CUDA_ARCH_FEAT_SM90_ALL
template <enum type T> static __device__ void multiply(float (&d)[128], uint64_t a, uint64_t b)
{
	if (T == F16)
		WGMMA("m64n256k16", "f16.f16", ", 0, 0");
	else if (T == BF16)
		WGMMA("m64n256k16", "bf16.bf16", ", 0, 0");
	else
		WGMMA("m64n256k8", "tf32.tf32", "");
}

/* Of a tile whose rows lie 128 bytes apart. */
static __device__ uint64_t descriptor(const void *tile)
{
	uint64_t address = (uint64_t)__cvta_generic_to_shared(tile);

	return (address & 0x3ffff) >> 4 | 1ull << 16 | (uint64_t)(8 * LINE >> 4) << 32 | 1ull << 62;
}
#endif

/* Numbers from [-1, 1), which a multiplier pays for as for any others. */
template <enum type T> static __device__ void fill(unsigned char *to, unsigned bytes)
{
	uint32_t state = threadIdx.x * 2654435761u + blockIdx.x + 1;

	for (unsigned i = threadIdx.x * 4; i < bytes; i += THREADS * 4) {
		state = state * 1664525u + 1013904223u;
		float x = (float)(int32_t)state * 0x1p-31f, y = (float)(int32_t)(state << 9) * 0x1p-31f;
		if (T == F16)
			*(__half2 *)(to + i) = __floats2half2_rn(x, y);
		else if (T == BF16)
			*(__nv_bfloat162 *)(to + i) = __floats2bfloat162_rn(x, y);
		else
			*(float *)(to + i) = x;
	}
}

template <enum type T> static __global__ void __launch_bounds__(THREADS) run(float *out)
{
	extern __shared__ __align__(1024) unsigned char tiles[];
	float d[128] = {0};

	fill<T>(tiles, 2 * A_BYTES + B_BYTES);
	__syncthreads();
#if __CUDA_ARCH_FEAT_SM90_ALL
	uint64_t a = descriptor(tiles + threadIdx.x / 128 * A_BYTES), b = descriptor(tiles + 2 * A_BYTES);
	asm volatile("fence.proxy.async;\n" ::: "memory");
	for (int round = 0; round < ROUNDS; round++) {
		asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) /* steps of 32 bytes along K */
			multiply<T>(d, a + i % 4 * 2, b + i % 4 * 2);
		asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" ::
		                 : "memory");
	}
#endif
	float sum = 0;
	for (int i = 0; i < 128; i++)
		sum += d[i];
	if (sum == 0.123456f) /* never: but then the compiler may drop nothing */
		*out = sum;
}

template <enum type T> static double gflops(int processors)
{
	size_t bytes = 2 * A_BYTES + B_BYTES;
	double flops = 2.0 * 64 * 256 * (T == TF32 ? 8 : 16) * IN_FLIGHT * ROUNDS * 2 * processors;
	cudaEvent_t begin, end;
	float ms, best = 1e9f;

	CHECK(cudaFuncSetAttribute(run<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	CHECK(cudaEventCreate(&begin));
	CHECK(cudaEventCreate(&end));
	for (int i = 0; i < RUNS; i++) {
		CHECK(cudaEventRecord(begin));
		run<T><<<processors, THREADS, bytes>>>(NULL);
		CHECK(cudaEventRecord(end));
		CHECK(cudaEventSynchronize(end));
		CHECK(cudaEventElapsedTime(&ms, begin, end));
		best = ms < best ? ms : best;
	}
	CHECK(cudaGetLastError());
	return flops / best / 1e6;
}

int main(void)
{
	struct cudaDeviceProp device;

	CHECK(cudaGetDeviceProperties(&device, 0));
	if (device.major != 9) {
		fprintf(stderr, "tensor_peer: %s has no wgmma\n", device.name);
		return 77;
	}
	printf("{\"f16_gflops_per_s\": %.0f, ", gflops<F16>(device.multiProcessorCount));
	printf("\"bf16_gflops_per_s\": %.0f, ", gflops<BF16>(device.multiProcessorCount));
	printf("\"tf32_gflops_per_s\": %.0f}\n", gflops<TF32>(device.multiProcessorCount));
	return 0;
}
