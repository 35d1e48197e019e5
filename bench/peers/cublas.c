/*
 * cublas_peer: what a program pays that calls cuBLAS itself, for comparison with kopsd in the same run. Pinned
 * host memory, plain copies, one stream, everything warm; random operands. Prints one JSON document with
 * medians in µs: host_to_host (upload A and B, SGEMM, download C, synchronise) and resident (SGEMM,
 * synchronise).
 *
 *     cublas_peer M N K [repetitions]
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK(call)                                                                                            \
	do {                                                                                                   \
		int failed = (int)(call);                                                                      \
		if (failed) {                                                                                  \
			fprintf(stderr, "cublas_peer: %s failed with %d\n", #call, failed);                    \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

struct problem {
	int m, n, k;
	float *host[3], *device[3];
	size_t bytes[3];
	cudaStream_t stream;
	cublasHandle_t blas;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void set_up(struct problem *p)
{
	p->bytes[0] = (size_t)p->m * (size_t)p->k * sizeof(float);
	p->bytes[1] = (size_t)p->k * (size_t)p->n * sizeof(float);
	p->bytes[2] = (size_t)p->m * (size_t)p->n * sizeof(float);
	srand((unsigned)time(NULL));
	for (int i = 0; i < 3; i++) {
		CHECK(cudaMallocHost((void **)&p->host[i], p->bytes[i]));
		CHECK(cudaMalloc((void **)&p->device[i], p->bytes[i]));
		for (size_t j = 0; j < p->bytes[i] / sizeof(float); j++)
			p->host[i][j] = (float)rand() / (float)RAND_MAX - 0.5f;
	}
	CHECK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
	CHECK(cublasCreate(&p->blas));
	CHECK(cublasSetStream(p->blas, p->stream));
	CHECK(cublasSetMathMode(p->blas, CUBLAS_PEDANTIC_MATH));
}

/* Row-major C = A·B as cuBLAS's column-major Cᵀ = Bᵀ·Aᵀ. */
static void multiply(struct problem *p)
{
	const float one = 1.0f, zero = 0.0f;

	CHECK(cublasSgemm(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, p->n, p->m, p->k, &one, p->device[1], p->n,
	                  p->device[0], p->k, &zero, p->device[2], p->n));
}

static double median_us(struct problem *p, int reps, int copies)
{
	double *us = malloc((size_t)reps * sizeof *us), median;

	for (int i = -5; i < reps; i++) {
		double start = now_us();
		if (copies)
			for (int j = 0; j < 2; j++)
				CHECK(cudaMemcpyAsync(p->device[j], p->host[j], p->bytes[j],
				                      cudaMemcpyHostToDevice, p->stream));
		multiply(p);
		if (copies)
			CHECK(cudaMemcpyAsync(p->host[2], p->device[2], p->bytes[2], cudaMemcpyDeviceToHost,
			                      p->stream));
		CHECK(cudaStreamSynchronize(p->stream));
		if (i >= 0)
			us[i] = now_us() - start;
	}
	qsort(us, (size_t)reps, sizeof *us, by_value);
	median = us[reps / 2];
	free(us);
	return median;
}

int main(int argc, char **argv)
{
	struct problem p = {0};
	int reps = argc > 4 ? atoi(argv[4]) : 50;
	double host_to_host, resident;

	if (argc < 4 || (p.m = atoi(argv[1])) < 1 || (p.n = atoi(argv[2])) < 1 || (p.k = atoi(argv[3])) < 1 ||
	    reps < 1) {
		fprintf(stderr, "usage: cublas_peer M N K [repetitions]\n");
		return 2;
	}
	set_up(&p);
	host_to_host = median_us(&p, reps, 1);
	resident = median_us(&p, reps, 0);
	printf(
	    "{\"peer\": \"cublas\", \"m\": %d, \"n\": %d, \"k\": %d, \"reps\": %d, \"host_to_host_us\": %.2f, "
	    "\"resident_us\": %.2f}\n",
	    p.m, p.n, p.k, reps, host_to_host, resident);
	return 0;
}
