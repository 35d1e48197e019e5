/*
 * openblas_peer M N K [reps [threads]]: the yardstick for `kops-bench gemm --device cpu`: the same
 * product by a bare cblas_sgemm in this process, on random input that was touched before. Prints one JSON
 * document.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cblas.h>

#define REPS_DEFAULT 50
#define WARMUP       5

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Returns n floats from [-1, 1), none of them zero; NULL if out of memory. */
static float *make_matrix(size_t n, uint64_t state)
{
	float *data = malloc(n * sizeof(*data));

	for (size_t i = 0; data && i < n; i++) {
		state ^= state >> 12;
		state ^= state << 25;
		state ^= state >> 27;
		data[i] = (float)(int64_t)(state * 0x2545f4914f6cdd1du) * 0x1p-63f;
	}
	return data;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(int m, int n, int k, const float *a, const float *b, float *c, double *us, int reps)
{
	for (int i = -WARMUP; i < reps; i++) {
		double start = now_us();
		cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n);
		if (i >= 0)
			us[i] = now_us() - start;
	}
	qsort(us, (size_t)reps, sizeof(*us), ascending);
}

static void report(int m, int n, int k, int reps, const double *us)
{
	double median = us[reps / 2];

	printf("{\"schema\": 1, \"peer\": \"cblas_sgemm\", \"library\": \"%s\", \"threads\": %d, \"m\": %d, "
	       "\"n\": %d, \"k\": %d, "
	       "\"reps\": %d, \"min_us\": %.3f, \"median_us\": %.3f, \"max_us\": %.3f, \"gflops\": %.3f}\n",
	       openblas_get_config(), openblas_get_num_threads(), m, n, k, reps, us[0], median, us[reps - 1],
	       2e-3 * m * n * k / median);
}

/* Returns a number from 1 to 100000, or 0. */
static int read_number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	return *text == '\0' || *end != '\0' || value < 1 || value > 100000 ? 0 : (int)value;
}

int main(int argc, char **argv)
{
	int numbers[5] = {0, 0, 0, REPS_DEFAULT, openblas_get_num_procs()};

	for (int i = 1; i < argc && i < 6; i++)
		numbers[i - 1] = read_number(argv[i]);
	int m = numbers[0], n = numbers[1], k = numbers[2], reps = numbers[3], threads = numbers[4];
	if (argc > 6 || m == 0 || n == 0 || k == 0 || reps == 0 || threads == 0) {
		fputs("usage: openblas_peer M N K [reps [threads]], each from 1 to 100000\n", stderr);
		return 2;
	}
	openblas_set_num_threads(threads);
	float *a = make_matrix((size_t)m * (size_t)k, 1), *b = make_matrix((size_t)k * (size_t)n, 2);
	float *c = make_matrix((size_t)m * (size_t)n, 3);
	double *us = calloc((size_t)reps, sizeof(*us));
	int code = 1;
	if (a && b && c && us) {
		measure(m, n, k, a, b, c, us, reps);
		report(m, n, k, reps, us);
		code = 0;
	} else {
		fputs("openblas_peer: out of memory\n", stderr);
	}
	free(a);
	free(b);
	free(c);
	free(us);
	return code;
}
