/*
 * cublas_peer: what a program pays that calls cuBLAS itself, for comparison with kopsd in the same run. Pinned
 * host memory, plain copies, one stream, everything warm; random operands. Prints one JSON document with
 * medians in µs: host_to_host (upload A and B, SGEMM, download C, synchronise), resident (SGEMM, as many as
 * asked for, synchronise) and graph (the same as one CUDA graph). It spins while it waits.
 *
 *     cublas_peer M N K [repetitions [products]]
 *
 * With a number of processes it prints what they get done together, host to host, each with one product out:
 * per_second of all, p50_us of all, worst_p99_us of any.
 *
 *     cublas_peer --processes COUNT M N K
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKSPACE_BYTES (32u << 20)

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
	void *workspace;
	int products; /* in a row, of the resident figures */
	cudaGraphExec_t graph;
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
	CHECK(cudaMalloc(&p->workspace, WORKSPACE_BYTES)); /* of its own, else cuBLAS is not recorded */
	CHECK(cublasSetWorkspace(p->blas, p->workspace, WORKSPACE_BYTES));
}

/* Row-major C = A·B as cuBLAS's column-major Cᵀ = Bᵀ·Aᵀ. */
static void multiply(struct problem *p)
{
	const float one = 1.0f, zero = 0.0f;

	CHECK(cublasSgemm(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, p->n, p->m, p->k, &one, p->device[1], p->n,
	                  p->device[0], p->k, &zero, p->device[2], p->n));
}

static void host_to_host(struct problem *p)
{
	for (int j = 0; j < 2; j++)
		CHECK(
		    cudaMemcpyAsync(p->device[j], p->host[j], p->bytes[j], cudaMemcpyHostToDevice, p->stream));
	multiply(p);
	CHECK(cudaMemcpyAsync(p->host[2], p->device[2], p->bytes[2], cudaMemcpyDeviceToHost, p->stream));
}

static void resident(struct problem *p)
{
	for (int i = 0; i < p->products; i++)
		multiply(p);
}

static void launch_graph(struct problem *p)
{
	CHECK(cudaGraphLaunch(p->graph, p->stream));
}

static void record(struct problem *p)
{
	cudaGraph_t recorded;

	resident(p);
	CHECK(cudaStreamSynchronize(p->stream));
	CHECK(cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
	resident(p);
	CHECK(cudaStreamEndCapture(p->stream, &recorded));
	CHECK(cudaGraphInstantiate(&p->graph, recorded, 0));
}

static double median_us(struct problem *p, int reps, void (*enqueue)(struct problem *p))
{
	double *us = malloc((size_t)reps * sizeof *us), median;

	for (int i = -5; i < reps; i++) {
		double start = now_us();
		enqueue(p);
		CHECK(cudaStreamSynchronize(p->stream));
		if (i >= 0)
			us[i] = now_us() - start;
	}
	qsort(us, (size_t)reps, sizeof *us, by_value);
	median = us[reps / 2];
	free(us);
	return median;
}

/* ---- Processes side by side ---- */

#define PROCESSES_MAX 64
#define RATE_US       1e6
#define SAMPLES_MAX   200000

/* Shared by all of them. */
struct side_by_side {
	int ready;
	struct {
		size_t n;
		double us[SAMPLES_MAX];
	} of[PROCESSES_MAX];
};

static void run_beside(struct side_by_side *all, int self, int count, struct problem *p)
{
	double end, begin;

	set_up(p);
	for (int i = 0; i < 50; i++) {
		host_to_host(p);
		CHECK(cudaStreamSynchronize(p->stream));
	}
	__atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < count)
		;
	end = now_us() + RATE_US;
	while ((begin = now_us()) < end && all->of[self].n < SAMPLES_MAX) {
		host_to_host(p);
		CHECK(cudaStreamSynchronize(p->stream));
		all->of[self].us[all->of[self].n++] = now_us() - begin;
	}
}

static int print_rate(struct side_by_side *all, int count)
{
	double *us, worst = 0;
	size_t n = 0, copied = 0;

	for (int i = 0; i < count; i++)
		n += all->of[i].n;
	us = n ? malloc(n * sizeof *us) : NULL;
	if (!us)
		return 1;
	for (int i = 0; i < count; i++) {
		double *own = all->of[i].us;
		size_t m = all->of[i].n;

		qsort(own, m, sizeof *own, by_value);
		if (m && own[m * 99 / 100] > worst)
			worst = own[m * 99 / 100];
		memcpy(us + copied, own, m * sizeof *own);
		copied += m;
	}
	qsort(us, n, sizeof *us, by_value);
	printf("{\"peer\": \"cublas\", \"processes\": %d, \"per_second\": %.0f, \"p50_us\": %.2f, "
	       "\"worst_p99_us\": %.2f}\n",
	       count, (double)n / (RATE_US / 1e6), us[n / 2], worst);
	free(us);
	return 0;
}

/* Forked before any of them has seen CUDA. */
static int run_processes(int count, struct problem *p)
{
	struct side_by_side *all =
	    mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int failed = 0, status;

	if (all == MAP_FAILED)
		return 1;
	for (int i = 0; i < count; i++)
		if (fork() == 0) {
			run_beside(all, i, count, p);
			_exit(0);
		}
	while (wait(&status) > 0) {
		failed |= status;
		__atomic_add_fetch(&all->ready, status != 0, __ATOMIC_SEQ_CST); /* nobody waits for it */
	}
	return failed ? 1 : print_rate(all, count);
}

static int extents(struct problem *p, char **argv)
{
	return (p->m = atoi(argv[0])) > 0 && (p->n = atoi(argv[1])) > 0 && (p->k = atoi(argv[2])) > 0;
}

int main(int argc, char **argv)
{
	struct problem p = {.products = argc > 5 ? atoi(argv[5]) : 1};
	int reps = argc > 4 ? atoi(argv[4]) : 50;

	if (argc == 6 && strcmp(argv[1], "--processes") == 0) {
		int count = atoi(argv[2]);
		p.products = 1;
		if (count >= 1 && count <= PROCESSES_MAX && extents(&p, argv + 3))
			return run_processes(count, &p);
	}
	if (argc < 4 || !extents(&p, argv + 1) || reps < 1 || p.products < 1) {
		fprintf(stderr, "usage: cublas_peer M N K [repetitions [products]]\n"
		                "       cublas_peer --processes COUNT M N K\n");
		return 2;
	}
	set_up(&p);
	record(&p);
	printf("{\"peer\": \"cublas\", \"m\": %d, \"n\": %d, \"k\": %d, \"reps\": %d, \"products\": %d, ", p.m,
	       p.n, p.k, reps, p.products);
	printf("\"host_to_host_us\": %.2f, ", median_us(&p, reps, host_to_host));
	printf("\"resident_us\": %.2f, ", median_us(&p, reps, resident));
	printf("\"graph_us\": %.2f}\n", median_us(&p, reps, launch_graph));
	return 0;
}
