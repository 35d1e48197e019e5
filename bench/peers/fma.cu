// fma_cuda_peer f32|f64: the most multiply-adds that the first GPU can do, the ceiling of `kops-bench gemm
// --fma-rate`. Each thread puts eight numbers in registers through v = 0.5 - v: eight chains hide the latency
// of one multiply-add, and values neither grow nor vanish. The best of some runs, with as many steps as make
// them take milliseconds. On an H200 65.7 TFLOP/s in f32, 33.1 in f64. Prints one JSON document.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

constexpr int CHAINS = 8, THREADS = 256, RUNS = 10;
constexpr unsigned BLOCKS = 1 << 15;                     // 64 Mi numbers: many blocks for each multiprocessor
constexpr uint32_t STEPS_FIRST = 64, STEPS_LAST = 16384; // even: every number is then what it was
constexpr float LONG_MS = 3;                             // launching is of no account then

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		cudaError_t failed = (call);                                                                   \
		if (failed != cudaSuccess) {                                                                   \
			fprintf(stderr, "fma_cuda_peer: %s: %s\n", #call, cudaGetErrorString(failed));         \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

// *wrong counts threads whose numbers did not come back, which also keeps the compiler from leaving them out.
template <typename T>
__global__ void __launch_bounds__(THREADS) iterate(T factor, T added, uint32_t steps, unsigned *wrong)
{
	T v[CHAINS];
	bool is_right = true;

#pragma unroll
	for (int c = 0; c < CHAINS; c++)
		v[c] = T(threadIdx.x + c) / 256;
#pragma unroll 32
	for (uint32_t s = 0; s < steps; s++)
#pragma unroll
		for (int c = 0; c < CHAINS; c++)
			v[c] = fma(factor, v[c], added);
#pragma unroll
	for (int c = 0; c < CHAINS; c++)
		is_right = is_right && v[c] == T(threadIdx.x + c) / 256;
	if (!is_right)
		atomicAdd(wrong, 1);
}

template <typename T> static float best_ms(uint32_t steps, unsigned *wrong)
{
	cudaEvent_t begin, end;
	float ms, best = 0;

	CHECK(cudaEventCreate(&begin));
	CHECK(cudaEventCreate(&end));
	for (int i = 0; i < RUNS; i++) {
		CHECK(cudaEventRecord(begin));
		iterate<T><<<BLOCKS, THREADS>>>(T(-1), T(0.5), steps, wrong);
		CHECK(cudaEventRecord(end));
		CHECK(cudaEventSynchronize(end));
		CHECK(cudaEventElapsedTime(&ms, begin, end));
		best = i == 0 || ms < best ? ms : best;
	}
	CHECK(cudaGetLastError());
	CHECK(cudaEventDestroy(begin));
	CHECK(cudaEventDestroy(end));
	return best;
}

template <typename T> static double gflops(unsigned *wrong)
{
	double best = 0;

	for (uint32_t steps = STEPS_FIRST; steps <= STEPS_LAST; steps *= 4) {
		float ms = best_ms<T>(steps, wrong);
		double rate = 2.0 * steps * CHAINS * THREADS * BLOCKS / ms / 1e6;
		best = rate > best ? rate : best;
		if (ms >= LONG_MS)
			break;
	}
	return best;
}

int main(int argc, char **argv)
{
	const char *type = argc == 2 ? argv[1] : "";
	unsigned *wrong, found;

	if (strcmp(type, "f32") != 0 && strcmp(type, "f64") != 0) {
		fprintf(stderr, "usage: fma_cuda_peer f32|f64\n");
		return 2;
	}
	CHECK(cudaMalloc(&wrong, sizeof *wrong));
	CHECK(cudaMemset(wrong, 0, sizeof *wrong));
	double rate = strcmp(type, "f32") == 0 ? gflops<float>(wrong) : gflops<double>(wrong);
	CHECK(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost));
	CHECK(cudaFree(wrong));
	if (found) {
		fprintf(stderr, "fma_cuda_peer: %u threads have other numbers than they began with\n", found);
		return 1;
	}
	printf("{\"fma_gflops_per_s\": %.3f}\n", rate);
	return 0;
}
