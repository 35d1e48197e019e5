/*
 * A program that knows nothing of kops and allocates: sizes around the one at which libkops-blas serves them,
 * by all functions, in several threads. Prints what is wrong.
 *
 * "in-place": products of allocated matrices. Prints a dot when it begins and when it is done, and waits for a
 * byte after each.
 */
#include <cblas.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acts.h"

#define MIB ((size_t)1 << 20)

static _Atomic int wrong;

#define EXPECT(condition)                                                                                      \
	do                                                                                                     \
		if (!(condition)) {                                                                            \
			printf("line %d: not %s\n", __LINE__, #condition);                                     \
			wrong++;                                                                               \
		}                                                                                              \
	while (0)

/* ---- The functions ---- */

static const size_t sizes[] = {0,       1,           4096,        MIB - 4096,  MIB - 1,      MIB,
                               MIB + 1, 2 * MIB - 1, 3 * MIB + 7, 8 * MIB + 1, 33 * MIB + 5, 700000};
#define SIZES (sizeof sizes / sizeof *sizes)

static bool is_filled(const void *memory, size_t bytes, int value)
{
	const unsigned char *p = memory;
	return bytes == 0 || (p[0] == (unsigned char)value && memcmp(p, p + 1, bytes - 1) == 0);
}

/* Uses all of the memory, as far as malloc_usable_size() allows. */
static void use(void *memory, size_t bytes, size_t align)
{
	if (!memory) {
		EXPECT(bytes == 0);
		return;
	}
	EXPECT((uintptr_t)memory % align == 0);
	size_t usable = malloc_usable_size(memory);
	EXPECT(usable >= bytes);
	memset(memory, 0x5A, usable);
	free(memory);
}

static void allocate(size_t bytes)
{
	void *p = NULL;
	use(malloc(bytes), bytes, 16);
	p = calloc(bytes ? bytes : 1, 1);
	EXPECT(p && is_filled(p, bytes, 0));
	use(p, bytes, 16);
	p = calloc(7, bytes / 7 + 1);
	EXPECT(p && is_filled(p, bytes / 7 * 7 + 7, 0));
	use(p, bytes / 7 * 7 + 7, 16);
	use(valloc(bytes), bytes, 4096);
	for (size_t align = 16; align <= 4 * MIB; align *= 4) {
		use(memalign(align, bytes), bytes, align);
		use(aligned_alloc(align, bytes), bytes, align);
		EXPECT(posix_memalign(&p, align, bytes) == 0);
		use(p, bytes, align);
	}
}

static void reallocate(size_t from, size_t to)
{
	char *p = malloc(from);
	EXPECT(p);
	memset(p, 0x33, from);
	size_t kept = from < to ? from : to;
	p = to % 2 ? realloc(p, to) : reallocarray(p, to / 2, 2);
	EXPECT((p != NULL) == (to > 0));
	if (!p)
		return;
	EXPECT(is_filled(p, kept, 0x33) && malloc_usable_size(p) >= to);
	memset(p, 0x44, malloc_usable_size(p));
	free(p);
}

/* Grows as a program that reads a file of unknown length. */
static void grow(void)
{
	size_t bytes = 1000;
	unsigned char *p = malloc(bytes);
	for (int step = 0; p && bytes < 40 * MIB; step++) {
		size_t more = bytes + bytes / 3;
		memset(p, step, bytes);
		p = realloc(p, more);
		EXPECT(p && is_filled(p, bytes, step));
		bytes = more;
	}
	for (; p && bytes > 1000; bytes = bytes * 2 / 3) {
		memset(p, 1, bytes);
		p = realloc(p, bytes * 2 / 3);
		EXPECT(p && is_filled(p, bytes * 2 / 3, 1));
	}
	free(p);
}

static void impossible(void)
{
	volatile size_t most = SIZE_MAX, half = SIZE_MAX / 2 + 2;
	void *volatile p = malloc(2 * MIB); /* volatile: compilers take it for freed, even if that failed */
	void *untouched = (void *)&wrong;
	memset(p, 1, 2 * MIB);
	errno = 0;
	EXPECT(!malloc(most) && errno == ENOMEM);
	EXPECT(!malloc(most / 2) && !malloc(most - 4096) && !calloc(most, 1) && !valloc(most));
	errno = 0;
	EXPECT(!calloc(half, 2) && errno == ENOMEM);
	EXPECT(!calloc(2, half) && !calloc(most, most));
	errno = 0;
	EXPECT(!reallocarray(p, half, 2) && errno == ENOMEM);
	EXPECT(!reallocarray(NULL, half, 2) && !realloc(p, most) && !realloc(p, most / 2));
	EXPECT(is_filled(p, 2 * MIB, 1));
	EXPECT(!memalign(4096, most) && !aligned_alloc(64, most));
	EXPECT(posix_memalign(&untouched, 24, 2 * MIB) == EINVAL &&
	       posix_memalign(&untouched, 4, MIB) == EINVAL);
	EXPECT(posix_memalign(&untouched, 64, most) == ENOMEM && untouched == (void *)&wrong);
	errno = 77;
	free(p);
	free(NULL);
	free(malloc(5 * MIB));
	EXPECT(errno == 77);
	EXPECT(malloc_usable_size(NULL) == 0);
}

static void *all(void *unused)
{
	for (size_t i = 0; i < SIZES; i++) {
		allocate(sizes[i]);
		for (size_t j = 0; j < SIZES; j++)
			reallocate(sizes[i], sizes[j]);
	}
	grow();
	impossible();
	return unused;
}

static void threads(void)
{
	pthread_t ids[4];
	for (int i = 0; i < 4; i++)
		if (pthread_create(&ids[i], NULL, all, NULL) != 0)
			exit(2);
	for (int i = 0; i < 4; i++)
		pthread_join(ids[i], NULL);
}

/* Memory that a thread allocated is its children's, and another's to free. */
static void *pass_on(void *memory)
{
	free(memory);
	void *p = malloc(3 * MIB);
	memset(p, 9, 3 * MIB);
	return p;
}

static void children(void)
{
	int status = -1;
	pthread_t id;
	void *p = malloc(3 * MIB);
	if (pthread_create(&id, NULL, pass_on, p) != 0 || pthread_join(id, &p) != 0)
		exit(2);
	pid_t child = fork();
	if (child == 0) {
		EXPECT(is_filled(p, 3 * MIB, 9));
		memset(p, 8, 3 * MIB);
		p = realloc(p, 9 * MIB);
		EXPECT(is_filled(p, 3 * MIB, 8));
		all(NULL);
		free(p);
		exit(wrong != 0);
	}
	all(NULL);
	waitpid(child, &status, 0);
	EXPECT(status == 0);
	EXPECT(is_filled(p, 3 * MIB, 9));
	free(p);
	EXPECT(system("exit 3") == 3 << 8);
}

/* ---- Products ---- */

#define SIDE 520 /* f64: 2 MiB a matrix */

static double *matrix(int seed)
{
	double *m = malloc(sizeof(double[SIDE][SIDE]));
	if (!m)
		exit(2);
	for (int i = 0; i < SIDE * SIDE; i++)
		m[i] = (i * 7 + i / 11 + seed) % 9 - 4;
	return m;
}

/* Checks some elements of c = a * b + beta * 3. */
static bool is_product(const double *a, const double *b, const double *c, int beta)
{
	for (int i = 0; i < SIDE; i += 37)
		for (int j = i % 7; j < SIDE; j += 41) {
			double sum = beta * 3;
			for (int k = 0; k < SIDE; k++)
				sum += a[i * SIDE + k] * b[k * SIDE + j];
			if (c[i * SIDE + j] != sum)
				return false;
		}
	return true;
}

static void multiply(const double *a, const double *b, double *c, int beta)
{
	for (int i = 0; i < SIDE * SIDE; i++)
		c[i] = 3;
	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, beta, c,
	            SIDE);
}

/* With results that are new each time, as NumPy's are. */
static void products(int n)
{
	double *a = matrix(1), *b = matrix(2), *before = NULL;
	for (int i = 0; i < n; i++) {
		double *c = malloc(sizeof(double[SIDE][SIDE]));
		multiply(a, b, c, 0);
		EXPECT(is_product(a, b, c, 0));
		free(before);
		before = c;
	}
	multiply(a, b, before, 1);
	EXPECT(is_product(a, b, before, 1));
	free(a);
	free(b);
	free(before);
}

static void fork_within(void)
{
	double *a = matrix(1), *b = matrix(2), *c = matrix(3);
	int status = -1;
	multiply(a, b, c, 0);
	pid_t child = fork();
	if (child == 0) {
		EXPECT(is_product(a, b, c, 0));
		for (int i = 0; i < SIDE * SIDE; i++)
			a[i] += 1;
		multiply(a, b, c, 0);
		EXPECT(is_product(a, b, c, 0));
		products(3);
		exit(wrong != 0);
	}
	multiply(a, b, c, 1);
	EXPECT(is_product(a, b, c, 1));
	waitpid(child, &status, 0);
	EXPECT(status == 0 && is_product(a, b, c, 1));
	products(3);
}

/* A thread's products while others fork. */
static _Atomic bool is_over;

static void *fork_often(void *unused)
{
	while (!is_over) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
		usleep(2000);
	}
	return unused;
}

static void forks_beside(void)
{
	pthread_t id;
	if (pthread_create(&id, NULL, fork_often, NULL) != 0)
		exit(2);
	products(60);
	is_over = true;
	pthread_join(id, NULL);
}

/* Leaves a product by longjmp() while kopsd is stopped, and uses the memory for something else. */
static void jump(void)
{
	double *a = matrix(1), *b = matrix(2), *volatile c = matrix(3);
	const struct itimerval soon = {.it_value.tv_usec = 10000};
	multiply(a, b, c, 0);
	signal(SIGALRM, leave);
	next_act();
	if (sigsetjmp(outside, 1) == 0) {
		setitimer(ITIMER_REAL, &soon, NULL);
		multiply(a, b, c, 0);
		EXPECT(false);
	}
	memset(c, 0x11, sizeof(double[SIDE][SIDE]));
	next_act();
	usleep(500000);
	EXPECT(is_filled(c, sizeof(double[SIDE][SIDE]), 0x11));
	multiply(a, b, c, 0);
	EXPECT(is_product(a, b, c, 0));
}

/* A product for which kopsd is too slow. It goes on with it later. */
static void slow(void)
{
	double *a = matrix(1), *b = matrix(2), *c = matrix(3);
	multiply(a, b, c, 0);
	next_act();
	multiply(a, b, c, 0);
	EXPECT(is_product(a, b, c, 0));
	memset(c, 0x11, sizeof(double[SIDE][SIDE]));
	next_act();
	usleep(500000);
	EXPECT(is_filled(c, sizeof(double[SIDE][SIDE]), 0x11));
}

/* Frees matrices, and takes their memory for something that no product uses. */
static void give_back(void)
{
	double *a = matrix(1), *b = matrix(2), *c = matrix(3);
	multiply(a, b, c, 0);
	EXPECT(is_product(a, b, c, 0));
	next_act();
	free(a);
	free(b);
	free(c);
	void *p = malloc(sizeof(double[3][SIDE][SIDE]));
	next_act();
	free(p);
}

static void loop(void)
{
	next_act();
	for (int i = 0; i < 30; i++)
		products(3);
	next_act();
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
	    {"threads", threads}, {"children", children},   {"fork", fork_within},          {"jump", jump},
	    {"slow", slow},       {"give-back", give_back}, {"forks-beside", forks_beside}, {"loop", loop}};
	if (strcmp(what, "products") == 0)
		products(argc > 2 ? atoi(argv[2]) : 3);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (strcmp(what, parts[i].name) == 0)
			parts[i].run();
	return wrong != 0;
}
