/*
 * fma_peer f32|f64: the most multiply-adds that all cores of this machine can do, the ceiling of
 * `kops-bench gemm --device cpu --fma-rate`. Each thread puts twelve vectors in registers through
 * v = 0.5 - v: chains enough to hide the latency of one multiply-add, and values neither grow nor
 * vanish. The best of some runs of a few milliseconds. Prints one JSON document.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHAINS      12         /* with registers for the factor and the addend they fit AVX2's 16 */
#define STEPS       (1u << 20) /* even, so that every value returns to its start */
#define RUNS        30
#define THREADS_MAX 1024

/* Returns the sum of all values, so that the compiler cannot leave any out. */
#define DEFINE_ITERATE(name, type, bytes, target)                                                              \
	typedef type name##_vector __attribute__((vector_size(bytes)));                                        \
	target static double name(double first, double factor, double added)                                   \
	{                                                                                                      \
		name##_vector v[CHAINS], a = (type)factor - (name##_vector){0};                                \
		name##_vector b = (type)added - (name##_vector){0};                                            \
		double sum = 0;                                                                                \
                                                                                                               \
		for (int c = 0; c < CHAINS; c++)                                                               \
			v[c] = (type)(first * (c + 1)) - (name##_vector){0};                                   \
		for (uint32_t s = 0; s < STEPS; s++) {                                                         \
			v[0] = v[0] * a + b, v[1] = v[1] * a + b, v[2] = v[2] * a + b, v[3] = v[3] * a + b;    \
			v[4] = v[4] * a + b, v[5] = v[5] * a + b, v[6] = v[6] * a + b, v[7] = v[7] * a + b;    \
			v[8] = v[8] * a + b, v[9] = v[9] * a + b, v[10] = v[10] * a + b;                       \
			v[11] = v[11] * a + b;                                                                 \
		}                                                                                              \
		for (int c = 0; c < CHAINS; c++)                                                               \
			for (size_t i = 0; i < bytes / sizeof(type); i++)                                      \
				sum += (double)v[c][i];                                                        \
		return sum;                                                                                    \
	}
DEFINE_ITERATE(plain_f32, float, 16, )
DEFINE_ITERATE(plain_f64, double, 16, )
#ifdef __x86_64__
DEFINE_ITERATE(avx2_f32, float, 32, __attribute__((target("avx2,fma"))))
DEFINE_ITERATE(avx2_f64, double, 32, __attribute__((target("avx2,fma"))))
DEFINE_ITERATE(avx512_f32, float, 64, __attribute__((target("avx512f"))))
DEFINE_ITERATE(avx512_f64, double, 64, __attribute__((target("avx512f"))))
#endif

struct vectors {
	double (*iterate)(double first, double factor, double added);
	unsigned elements;
};

/* Returns the widest vectors of this processor. */
static struct vectors widest(bool is_f64)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return is_f64 ? (struct vectors){avx512_f64, 8} : (struct vectors){avx512_f32, 16};
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return is_f64 ? (struct vectors){avx2_f64, 4} : (struct vectors){avx2_f32, 8};
#endif
	return is_f64 ? (struct vectors){plain_f64, 2} : (struct vectors){plain_f32, 4};
}

struct work {
	double (*iterate)(double first, double factor, double added);
	double first, factor, added, sum;
	pthread_barrier_t *barrier;
};

static void *run(void *data)
{
	struct work *w = data;

	for (int i = 0; i < RUNS; i++) {
		pthread_barrier_wait(w->barrier);
		w->sum = w->iterate(w->first, w->factor, w->added);
		pthread_barrier_wait(w->barrier);
	}
	return NULL;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Returns the ns of the shortest run of n threads beside this one, which only watches the clock. */
static double best_ns(const struct work *work, unsigned n, double want)
{
	static struct work all[THREADS_MAX];
	static pthread_t threads[THREADS_MAX];
	pthread_barrier_t barrier;
	double best = 0;

	pthread_barrier_init(&barrier, NULL, n + 1);
	for (unsigned t = 0; t < n; t++) {
		all[t] = *work;
		all[t].barrier = &barrier;
		if (pthread_create(&threads[t], NULL, run, &all[t]))
			return -1;
	}
	for (int i = 0; i < RUNS; i++) {
		pthread_barrier_wait(&barrier);
		double start = now_ns();
		pthread_barrier_wait(&barrier);
		double ns = now_ns() - start;
		best = i == 0 || ns < best ? ns : best;
	}
	for (unsigned t = 0; t < n; t++) {
		pthread_join(threads[t], NULL);
		best = all[t].sum == want ? best : -1;
	}
	pthread_barrier_destroy(&barrier);
	return best;
}

int main(int argc, char **argv)
{
	const char *type = argc == 2 ? argv[1] : "";
	bool is_f64 = strcmp(type, "f64") == 0;
	struct vectors v = widest(is_f64);
	struct work work = {.iterate = v.iterate, .first = 0.125, .factor = -1, .added = 0.5};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (unsigned)cores;

	if (!is_f64 && strcmp(type, "f32") != 0) {
		fprintf(stderr, "usage: fma_peer f32|f64\n");
		return 2;
	}
	double ns = best_ns(&work, n, 0.125 * v.elements * CHAINS * (CHAINS + 1) / 2);
	if (!(ns > 0)) {
		fprintf(stderr, "fma_peer: no threads, or a wrong sum\n");
		return 1;
	}
	printf("{\"fma_gflops_per_s\": %.3f}\n", 2.0 * STEPS * CHAINS * v.elements * n / ns);
	return 0;
}
