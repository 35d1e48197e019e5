// floor_peer: the least that a product of 64³ takes on this machine, kopsd's floor. Prints JSON, in µs:
//
//   one_us        one product of operands in pinned host memory, read in place, as a CUDA graph; its kernel
//                 writes a word of pinned memory, at which the launching thread looks all the time; median
//   host_us,      64 products in one launch of a block each, of operands in pinned host memory and in the
//   resident_us   device's memory, until the same word; medians
//
// Plain FMA in shared memory: what is measured is the way, the arithmetic of 64³ is 3 µs of one block.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

constexpr int SIZE = 64, TOGETHER = 64, THREADS = SIZE * SIZE / 4, REPS = 1000, WARMUP = 50;
constexpr size_t MATRIX = SIZE * SIZE;

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		cudaError_t failed = (call);                                                                   \
		if (failed != cudaSuccess) {                                                                   \
			fprintf(stderr, "floor_peer: %s: %s\n", #call, cudaGetErrorString(failed));            \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

// `through` counts blocks; the last one sets *word to the number of this launch, which is kept in the device.
struct completion {
	unsigned *through, *launch;
	volatile unsigned *word;
};

__device__ void complete(const completion &c)
{
	__threadfence_system();
	__syncthreads();
	if (threadIdx.x || atomicAdd(c.through, 1) != gridDim.x - 1)
		return;
	*c.through = 0;
	__threadfence_system();
	*c.word = ++*c.launch;
}

// A block for each product; a thread for four elements of a row of C. A, B and C lie one after the other.
__global__ void __launch_bounds__(THREADS) products(float *operands, completion c)
{
	__shared__ float4 a[MATRIX / 4], b[MATRIX / 4];
	float4 *at = reinterpret_cast<float4 *>(operands + blockIdx.x * 3 * MATRIX), sum = {0, 0, 0, 0};
	int row = threadIdx.x / (SIZE / 4), column = threadIdx.x % (SIZE / 4);

	a[threadIdx.x] = at[threadIdx.x];
	b[threadIdx.x] = at[MATRIX / 4 + threadIdx.x];
	__syncthreads();
	for (int k = 0; k < SIZE; k++) {
		float left = reinterpret_cast<float *>(a)[row * SIZE + k];
		float4 right = b[k * (SIZE / 4) + column];
		sum.x += left * right.x;
		sum.y += left * right.y;
		sum.z += left * right.z;
		sum.w += left * right.w;
	}
	at[2 * (MATRIX / 4) + threadIdx.x] = sum;
	complete(c);
}

static double now_us()
{
	return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
	    .count();
}

static completion make_completion(void)
{
	completion c;
	unsigned *word;

	CHECK(cudaMalloc(&c.through, sizeof(unsigned)));
	CHECK(cudaMalloc(&c.launch, sizeof(unsigned)));
	CHECK(cudaMemset(c.through, 0, sizeof(unsigned)));
	CHECK(cudaMemset(c.launch, 0, sizeof(unsigned)));
	CHECK(cudaMallocHost(&word, sizeof(unsigned)));
	*word = 0;
	c.word = word;
	return c;
}

static cudaGraphExec_t record(cudaStream_t stream, float *operands, int count, const completion &c)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	products<<<count, THREADS, 0, stream>>>(operands, c);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	return exec;
}

static double median_us(cudaStream_t stream, float *operands, int count)
{
	completion c = make_completion();
	cudaGraphExec_t graph = record(stream, operands, count, c);
	std::vector<double> us;

	for (unsigned i = 1; i <= WARMUP + REPS; i++) {
		double begin = now_us();
		CHECK(cudaGraphLaunch(graph, stream));
		while (*c.word != i)
			if (now_us() - begin > 1e6)
				CHECK(cudaStreamSynchronize(stream));
		if (i > WARMUP)
			us.push_back(now_us() - begin);
	}
	std::nth_element(us.begin(), us.begin() + REPS / 2, us.end());
	return us[REPS / 2];
}

// All of A is 1, all of B 2: C is 128.
static void fill(float *operands)
{
	for (int p = 0; p < TOGETHER; p++)
		for (size_t i = 0; i < 3 * MATRIX; i++)
			operands[p * 3 * MATRIX + i] = i / MATRIX == 0 ? 1 : i / MATRIX == 1 ? 2 : 0;
}

static void check(const float *operands)
{
	for (int p = 0; p < TOGETHER; p++)
		for (size_t i = 2 * MATRIX; i < 3 * MATRIX; i++)
			if (operands[p * 3 * MATRIX + i] != 2 * SIZE) {
				fprintf(stderr, "floor_peer: a product is wrong\n");
				exit(1);
			}
}

int main()
{
	size_t bytes = TOGETHER * 3 * MATRIX * sizeof(float);
	float *host, *device;
	cudaStream_t stream;

	CHECK(cudaMallocHost(&host, bytes));
	CHECK(cudaMalloc(&device, bytes));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	fill(host);
	CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
	double one = median_us(stream, host, 1), of_host = median_us(stream, host, TOGETHER);
	double resident = median_us(stream, device, TOGETHER);
	check(host);
	CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
	check(host);
	printf("{\"peer\": \"floor\", \"size\": %d, \"together\": %d, \"one_us\": %.2f, \"host_us\": %.2f, "
	       "\"resident_us\": %.2f}\n",
	       SIZE, TOGETHER, one, of_host, resident);
	return 0;
}
