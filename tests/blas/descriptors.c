/*
 * A program that computes products while it changes its folder, closes all descriptors but the standard ones,
 * opens pipes under the freed numbers, and forks. Prints "right" if every product is right and nothing was
 * written to its pipes.
 */
#include <cblas.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 64, PIPES = 16 };

static double a[N * N], c[N * N];

/* Multiplies matrices of small integers, so results are exact. */
static bool multiply(int seed)
{
	for (int i = 0; i < N * N; i++) {
		a[i] = (i * 7 + seed) % 9 - 4;
		c[i] = -1;
	}
	cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, a, N, a, N, 0, c, N);
	for (int i = 0; i < N; i++)
		for (int j = 0; j < N; j++) {
			double sum = 0;
			for (int k = 0; k < N; k++)
				sum += a[i * N + k] * a[j * N + k];
			if (c[i * N + j] != sum)
				return false;
		}
	return true;
}

/* Returns their reading ends. */
static bool open_pipes(int ret_ends[PIPES])
{
	for (int i = 0; i < PIPES; i++) {
		int both[2];
		if (pipe2(both, O_NONBLOCK) < 0)
			return false;
		ret_ends[i] = both[0];
	}
	return true;
}

static bool are_untouched(const int ends[PIPES])
{
	char byte;
	for (int i = 0; i < PIPES; i++)
		if (read(ends[i], &byte, 1) >= 0 || errno != EAGAIN)
			return false;
	return true;
}

static bool close_and_multiply(int seed, bool reuse)
{
	int ends[PIPES];
	closefrom(3);
	if (reuse && !open_pipes(ends))
		return false;
	return multiply(seed) && multiply(seed + 1) && (!reuse || are_untouched(ends));
}

static bool in_a_child(bool reuse)
{
	int status = -1;
	pid_t child = fork();
	if (child == 0)
		exit(close_and_multiply(20, reuse) ? 0 : 1); /* the library reports what it did */
	return waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	bool right = multiply(0) && chdir("/") == 0 && in_a_child(false) && in_a_child(true) && multiply(1);
	for (int i = 0; i < 4; i++)
		right = right && close_and_multiply(2 * i + 2, i % 2 == 1);
	puts(right ? "right" : "wrong");
	return right ? 0 : 1;
}
