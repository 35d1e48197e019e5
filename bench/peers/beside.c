/*
 * beside_peer: how long a small product takes beside a heavy program, where both call cuBLAS themselves.
 *
 *     beside_peer EVERY_US COUNT TYPE:SIZE
 *
 * One process computes SIZE³ products of the type (f32, tf32, f64, f16, bf16), with operands in the device's
 * memory and two products in flight all the time. Another computes a 64³ product of f32 host to host every
 * EVERY_US microseconds, COUNT times or for 3 seconds: first while the heavy one waits, then beside it. Each
 * has a context of its own, or both are clients of MPS, where that serves them.
 *
 * Prints one JSON document: quiet and light, the times of small products in µs; alone_per_second and
 * beside_per_second, heavy products.
 */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_peer.h"

enum { LIGHT = 64, WARMUP = 60, COUNT_MAX = 100000, OUT = 2 };
#define LONGEST_US 3e6
#define ALONE_US   1e6

static const struct type {
	const char *name;
	cudaDataType_t data;
	cublasComputeType_t compute;
	size_t bytes;
	uint64_t kept, set; /* of 8 bytes of random bits, which makes numbers of ±[0.25, 0.5) */
} types[] = {
    {"f32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 0x807fffff807fffff, 0x3e8000003e800000},
    {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, 0x807fffff807fffff, 0x3e8000003e800000},
    {"f64", CUDA_R_64F, CUBLAS_COMPUTE_64F, 8, 0x800fffffffffffff, 0x3fd0000000000000},
    {"f16", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, 0x83ff83ff83ff83ff, 0x3400340034003400},
    {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, 0x807f807f807f807f, 0x3e803e803e803e80},
};

enum phase { SETTING_UP, QUIET, ALONE, BESIDE, OVER };

struct times {
	size_t n;
	double us[COUNT_MAX];
};

/* Memory that both processes share. */
static struct {
	int ready, phase; /* atomic */
	size_t done;      /* atomic: heavy products */
	double alone_per_second, beside_per_second;
	struct times quiet, light;
} * all;

static void sleep_until(double us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1e6), .tv_nsec = (long)((uint64_t)us % 1000000 * 1000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static enum phase phase_now(void)
{
	return (enum phase)__atomic_load_n(&all->phase, __ATOMIC_ACQUIRE);
}

static void begin(enum phase phase)
{
	__atomic_store_n(&all->phase, (int)phase, __ATOMIC_RELEASE);
}

static void await(enum phase phase)
{
	while (phase_now() < phase)
		sleep_until(now_us() + 100);
}

/* Both are set up when each has called this. */
static void is_ready(void)
{
	__atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < 2)
		sleep_until(now_us() + 100);
}

static void fill(void *data, size_t bytes, const struct type *type)
{
	uint64_t state = 88172645463325252ull, *words = data;

	for (size_t i = 0; i < bytes / 8; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		words[i] = (state & type->kept) | type->set;
	}
}

/* Row-major C = A·B as cuBLAS's column-major Cᵀ = Bᵀ·Aᵀ. */
struct product {
	const struct type *type;
	int n;
	size_t bytes;
	void *host, *a, *b, *c; /* host: of all three, pinned */
	cublasHandle_t blas;
	cudaStream_t stream;
};

static void set_up(struct product *p, const struct type *type, int n)
{
	*p = (struct product){.type = type, .n = n, .bytes = (size_t)n * (size_t)n * type->bytes};
	CHECK(cudaMallocHost(&p->host, 3 * p->bytes));
	fill(p->host, 3 * p->bytes, type);
	CHECK(cudaMalloc(&p->a, p->bytes));
	CHECK(cudaMalloc(&p->b, p->bytes));
	CHECK(cudaMalloc(&p->c, p->bytes));
	CHECK(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
	CHECK(cublasCreate(&p->blas));
	CHECK(cublasSetStream(p->blas, p->stream));
}

static void upload(const struct product *p)
{
	CHECK(cudaMemcpyAsync(p->a, p->host, p->bytes, cudaMemcpyHostToDevice, p->stream));
	CHECK(cudaMemcpyAsync(p->b, (char *)p->host + p->bytes, p->bytes, cudaMemcpyHostToDevice, p->stream));
}

static void multiply(const struct product *p)
{
	const struct type *t = p->type;
	const float one = 1, zero = 0;
	const double one_f64 = 1, zero_f64 = 0;
	int is_f64 = t->data == CUDA_R_64F;

	CHECK(cublasGemmEx(p->blas, CUBLAS_OP_N, CUBLAS_OP_N, p->n, p->n, p->n,
	                   is_f64 ? (const void *)&one_f64 : &one, p->b, t->data, p->n, p->a, t->data, p->n,
	                   is_f64 ? (const void *)&zero_f64 : &zero, p->c, t->data, p->n, t->compute,
	                   CUBLAS_GEMM_DEFAULT));
}

/* ---- The heavy program ---- */

static void be_heavy(const struct type *type, int n)
{
	struct product p;
	cudaEvent_t ended[OUT];
	size_t sent = 0, done = 0;
	double start = 0;

	set_up(&p, type, n);
	upload(&p);
	multiply(&p);
	CHECK(cudaStreamSynchronize(p.stream));
	for (int i = 0; i < OUT; i++)
		CHECK(cudaEventCreateWithFlags(&ended[i], cudaEventDisableTiming));
	is_ready();
	await(ALONE);
	start = now_us();
	while (phase_now() != OVER) {
		for (; sent < done + OUT; sent++) {
			multiply(&p);
			CHECK(cudaEventRecord(ended[sent % OUT], p.stream));
		}
		CHECK(cudaEventSynchronize(ended[done % OUT]));
		done++;
		__atomic_store_n(&all->done, done, __ATOMIC_RELEASE);
		if (phase_now() == ALONE && now_us() - start > ALONE_US) {
			all->alone_per_second = (double)done / (now_us() - start) * 1e6;
			begin(BESIDE);
		}
	}
	CHECK(cudaStreamSynchronize(p.stream));
}

/* ---- The light one ---- */

static void host_to_host(const struct product *p)
{
	upload(p);
	multiply(p);
	CHECK(
	    cudaMemcpyAsync((char *)p->host + 2 * p->bytes, p->c, p->bytes, cudaMemcpyDeviceToHost, p->stream));
	CHECK(cudaStreamSynchronize(p->stream));
}

static void measure(const struct product *p, double every_us, size_t count, struct times *times)
{
	double begin_us = now_us(), due = begin_us;

	while (times->n < count && now_us() - begin_us < LONGEST_US) {
		double start;

		sleep_until(due);
		start = now_us();
		host_to_host(p);
		times->us[times->n++] = now_us() - start;
		due = due + every_us > now_us() ? due + every_us : now_us();
	}
}

static void be_light(double every_us, size_t count)
{
	struct product p;
	double start;
	size_t done;

	set_up(&p, &types[0], LIGHT);
	for (int i = 0; i < WARMUP; i++)
		host_to_host(&p);
	is_ready();
	measure(&p, every_us, count / 4 + 1, &all->quiet);
	begin(ALONE);
	await(BESIDE);
	start = now_us();
	done = __atomic_load_n(&all->done, __ATOMIC_ACQUIRE);
	measure(&p, every_us, count, &all->light);
	all->beside_per_second =
	    (double)(__atomic_load_n(&all->done, __ATOMIC_ACQUIRE) - done) / (now_us() - start) * 1e6;
	begin(OVER);
}

/* ---- Both ---- */

static void print_times(const char *name, struct times *t)
{
	qsort(t->us, t->n, sizeof *t->us, by_value);
	printf("\"%s\": {\"jobs\": %zu, \"p50_us\": %.2f, \"p99_us\": %.2f, \"worst_us\": %.2f}, ", name, t->n,
	       t->us[t->n / 2], t->us[t->n * 99 / 100], t->us[t->n - 1]);
}

static pid_t start(int is_heavy, const struct type *type, int n, double every_us, size_t count)
{
	pid_t child = fork();

	if (child != 0)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (is_heavy)
		be_heavy(type, n);
	else
		be_light(every_us, count);
	_exit(0);
}

/* If one fails, the other would wait for it. */
static int wait_for_both(const pid_t children[2])
{
	int status, failed = 0;

	for (pid_t ended; (ended = wait(&status)) > 0;) {
		if (status == 0 || failed)
			continue;
		failed = 1;
		kill(children[ended == children[0]], SIGKILL);
	}
	return failed;
}

static const struct type *read_load(const char *text, int *ret_n)
{
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		size_t length = strlen(types[i].name);

		if (strncmp(text, types[i].name, length) == 0 && text[length] == ':')
			return (*ret_n = atoi(text + length + 1)) > 0 ? &types[i] : NULL;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int n = 0;
	const struct type *type = argc == 4 ? read_load(argv[3], &n) : NULL;
	double every_us = argc == 4 ? atof(argv[1]) : 0;
	long count = argc == 4 ? atol(argv[2]) : 0;
	pid_t children[2];

	if (!type || every_us <= 0 || count < 1 || count > COUNT_MAX) {
		fprintf(stderr,
		        "usage: beside_peer EVERY_US COUNT f32|tf32|f64|f16|bf16:SIZE    (COUNT: 1 to %d)\n",
		        COUNT_MAX);
		return 2;
	}
	all =
	    mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	for (int i = 0; i < 2; i++)
		children[i] = start(i == 0, type, n, every_us, (size_t)count);
	if (children[0] < 0 || children[1] < 0 || wait_for_both(children))
		return 1;
	printf("{\"peer\": \"cublas\", ");
	print_times("quiet", &all->quiet);
	print_times("light", &all->light);
	printf("\"alone_per_second\": %.3f, \"beside_per_second\": %.3f}\n", all->alone_per_second,
	       all->beside_per_second);
	return 0;
}
