/*
 * cublas_peer: measures a program that calls cuBLAS itself, for comparison with kopsd in the same run. It uses
 * pinned host memory, plain copies and random operands, with everything warm, and spins while it waits.
 *
 *     cublas_peer MxNxK[:PRODUCTS]...
 *
 * prints one JSON document with medians in µs of each shape: host_to_host (upload A and B, SGEMM, download C,
 * synchronise), resident (SGEMM, as many as asked for, synchronise) and graph (the same as one CUDA graph).
 *
 *     cublas_peer --processes COUNT OUT[,OUT...] MxNxK
 *
 * prints what COUNT processes complete together host to host, each with its own context. OUT is the number of
 * products that each process has out at a time, on a stream each. per_second and p50_us are of all processes,
 * worst_p99_us of any.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_peer.h"

#define WORKSPACE_BYTES (4u << 20)
#define WARMUP          5
#define REPS            50
#define REPS_MIN        5
#define REPS_US         3e5 /* time after which long products are not repeated */

struct problem {
	int m, n, k;
	int products; /* number of products in a row, for the resident figures */
	float *host[3], *device[3];
	size_t bytes[3];
	cudaStream_t stream;
	void *workspace; /* each has its own; otherwise cuBLAS cannot be recorded */
	cudaGraphExec_t graph;
};

static struct {
	cublasHandle_t handle;
	const struct problem *at; /* the problem whose stream and workspace the handle uses */
} blas;

/* Fills with numbers from [-0.5, 0.5), by xorshift. */
static void fill(float *values, size_t n)
{
	uint32_t state = 2463534242u;

	for (size_t i = 0; i < n; i++) {
		state ^= state << 13;
		state ^= state >> 17;
		state ^= state << 5;
		values[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
	}
}

static void set_up(struct problem *p)
{
	p->bytes[0] = (size_t)p->m * (size_t)p->k * sizeof(float);
	p->bytes[1] = (size_t)p->k * (size_t)p->n * sizeof(float);
	p->bytes[2] = (size_t)p->m * (size_t)p->n * sizeof(float);
	for (int i = 0; i < 3; i++) {
		CHECK(cudaMallocHost((void **)&p->host[i], p->bytes[i]));
		CHECK(cudaMalloc((void **)&p->device[i], p->bytes[i]));
		fill(p->host[i], p->bytes[i] / sizeof(float));
	}
	CHECK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
	CHECK(cudaMalloc(&p->workspace, WORKSPACE_BYTES));
	if (!blas.handle) {
		CHECK(cublasCreate(&blas.handle));
		CHECK(cublasSetMathMode(blas.handle, CUBLAS_PEDANTIC_MATH));
	}
}

static void tear_down(struct problem *p)
{
	blas.at = NULL;
	if (p->graph)
		CHECK(cudaGraphExecDestroy(p->graph));
	CHECK(cudaFree(p->workspace));
	CHECK(cudaStreamDestroy(p->stream));
	for (int i = 0; i < 3; i++) {
		CHECK(cudaFree(p->device[i]));
		CHECK(cudaFreeHost(p->host[i]));
	}
}

/* Computes row-major C = A·B as cuBLAS's column-major Cᵀ = Bᵀ·Aᵀ. */
static void multiply(struct problem *p)
{
	const float one = 1.0f, zero = 0.0f;

	if (blas.at != p) {
		CHECK(cublasSetStream(blas.handle, p->stream));
		CHECK(cublasSetWorkspace(blas.handle, p->workspace, WORKSPACE_BYTES));
		blas.at = p;
	}
	CHECK(cublasSgemm(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, p->n, p->m, p->k, &one, p->device[1], p->n,
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

/* ---- One at a time ---- */

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
	CHECK(cudaGraphDestroy(recorded));
}

static double median_us(struct problem *p, void (*enqueue)(struct problem *p))
{
	double us[REPS], start, all_us = 0;
	size_t n = 0;

	for (int i = -WARMUP; i < REPS && (i < REPS_MIN || all_us < REPS_US); i++) {
		start = now_us();
		enqueue(p);
		CHECK(cudaStreamSynchronize(p->stream));
		if (i >= 0)
			all_us += us[n++] = now_us() - start;
	}
	qsort(us, n, sizeof *us, by_value);
	return us[n / 2];
}

static void print_shape(struct problem *p)
{
	set_up(p);
	record(p);
	printf("{\"m\": %d, \"n\": %d, \"k\": %d, \"products\": %d, ", p->m, p->n, p->k, p->products);
	printf("\"host_to_host_us\": %.2f, ", median_us(p, host_to_host));
	printf("\"resident_us\": %.2f, ", median_us(p, resident));
	printf("\"graph_us\": %.2f}", median_us(p, launch_graph));
	tear_down(p);
}

/* ---- Processes side by side ---- */

#define PROCESSES_MAX 64
#define OUT_MAX       64
#define RATES_MAX     4
#define RATE_US       5e5
#define SAMPLES_MAX   200000

struct times {
	size_t n;
	double us[SAMPLES_MAX];
};

/* Memory that all processes share. */
struct side_by_side {
	int ready, failed;
	int out[RATES_MAX], rates;
	struct times of[RATES_MAX][PROCESSES_MAX];
};

/* Waits for products in the order in which they were sent. */
static void keep_busy(struct problem *slots, int out, double us, struct times *times)
{
	double sent_us[OUT_MAX], end = now_us() + us;
	size_t sent = 0, done = 0;

	while (done < sent || now_us() < end) {
		size_t next = sent % (size_t)out, oldest = done % (size_t)out;

		if (sent < done + (size_t)out && now_us() < end) {
			sent_us[next] = now_us();
			host_to_host(&slots[next]);
			sent++;
			continue;
		}
		CHECK(cudaStreamSynchronize(slots[oldest].stream));
		if (times->n < SAMPLES_MAX)
			times->us[times->n++] = now_us() - sent_us[oldest];
		done++;
	}
}

static void wait_for_others(struct side_by_side *all, int count)
{
	__atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < count)
		if (__atomic_load_n(&all->failed, __ATOMIC_SEQ_CST))
			_exit(1);
}

static void run_beside(struct side_by_side *all, int self, int count, const struct problem *shape)
{
	static struct problem slots[OUT_MAX];
	static struct times warmup;
	int n = 0;

	for (int r = 0; r < all->rates; r++) {
		for (; n < all->out[r]; n++) {
			slots[n] = *shape;
			set_up(&slots[n]);
		}
		keep_busy(slots, all->out[r], RATE_US / 10, &warmup);
		wait_for_others(all, count * (r + 1));
		keep_busy(slots, all->out[r], RATE_US, &all->of[r][self]);
	}
}

static int print_rate(struct side_by_side *all, int count, int r)
{
	double *us, worst = 0;
	size_t n = 0, copied = 0;

	for (int i = 0; i < count; i++)
		n += all->of[r][i].n;
	us = n ? malloc(n * sizeof *us) : NULL;
	if (!us)
		return 1;
	for (int i = 0; i < count; i++) {
		struct times *own = &all->of[r][i];

		qsort(own->us, own->n, sizeof *own->us, by_value);
		if (own->n && own->us[own->n * 99 / 100] > worst)
			worst = own->us[own->n * 99 / 100];
		memcpy(us + copied, own->us, own->n * sizeof *us);
		copied += own->n;
	}
	qsort(us, n, sizeof *us, by_value);
	printf("%s{\"out\": %d, \"per_second\": %.0f, \"p50_us\": %.2f, \"worst_p99_us\": %.2f}", r ? ", " : "",
	       all->out[r], (double)n / (RATE_US / 1e6), us[n / 2], worst);
	free(us);
	return 0;
}

/* Forks before any process has used CUDA. */
static int run_processes(struct side_by_side *all, int count, const struct problem *shape)
{
	int status, rc = 0;

	for (int i = 0; i < count; i++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would wait for the child */
			run_beside(all, i, count, shape);
			_exit(0);
		}
	while (wait(&status) > 0)
		if (status != 0)
			__atomic_store_n(&all->failed, 1, __ATOMIC_SEQ_CST);
	if (all->failed)
		return 1;
	printf("{\"peer\": \"cublas\", \"processes\": %d, \"rates\": [", count);
	for (int r = 0; r < all->rates && rc == 0; r++)
		rc = print_rate(all, count, r);
	puts("]}");
	return rc;
}

/* ---- Arguments ---- */

static int read_shape(const char *text, struct problem *p)
{
	*p = (struct problem){.products = 1};
	return sscanf(text, "%dx%dx%d:%d", &p->m, &p->n, &p->k, &p->products) >= 3 && p->m > 0 && p->n > 0 &&
	       p->k > 0 && p->products > 0;
}

static int read_outs(char *text, struct side_by_side *all)
{
	for (char *one; (one = strsep(&text, ",")) != NULL; all->rates++)
		if (all->rates == RATES_MAX || (all->out[all->rates] = atoi(one)) < 1 ||
		    all->out[all->rates] > OUT_MAX)
			return 0;
	return 1;
}

static int usage(void)
{
	fprintf(stderr,
	        "usage: cublas_peer MxNxK[:PRODUCTS]...\n"
	        "       cublas_peer --processes COUNT OUT[,OUT...] MxNxK    (COUNT, OUT: 1 to %d)\n",
	        PROCESSES_MAX);
	return 2;
}

static int processes_main(char **argv)
{
	struct side_by_side *all =
	    mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int count = atoi(argv[0]);
	struct problem shape;

	if (all == MAP_FAILED)
		return 1;
	if (count < 1 || count > PROCESSES_MAX || !read_outs(argv[1], all) || !read_shape(argv[2], &shape))
		return usage();
	return run_processes(all, count, &shape);
}

int main(int argc, char **argv)
{
	struct problem p;

	if (argc == 5 && strcmp(argv[1], "--processes") == 0)
		return processes_main(argv + 2);
	for (int i = 1; i < argc; i++)
		if (!read_shape(argv[i], &p))
			return usage();
	if (argc < 2)
		return usage();
	printf("{\"peer\": \"cublas\", \"shapes\": [");
	for (int i = 1; i < argc; i++) {
		read_shape(argv[i], &p);
		printf("%s", i > 1 ? ", " : "");
		print_shape(&p);
	}
	puts("]}");
	return 0;
}
