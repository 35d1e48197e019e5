/* settings.c: reads KOPS_BLAS_THRESHOLD and its like. */
#include "settings.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpus.h"
#include "decimal.h"
#include "guard.h"

/* Below 128 × 128 × 128 a message each way takes longer than the product. */
#define SMALLEST (128.0 * 128.0 * 128.0)

/* ScaLAPACK's own value is 32, which computes a sixteenth as much per byte of c moved. */
#define PBLAS_BLOCK     512
#define PBLAS_BLOCK_MAX 65536

/* More threads do not copy faster: they wait for the memory. */
#define THREADS_STANDARD 16
#define THREADS_MAX      1024

static struct settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Returns true in the daemon: if its BLAS is this library, its products must not come back to it. */
static bool is_kopsd(void)
{
	return strcmp(program_invocation_short_name, "kopsd") == 0;
}

/*
 * Returns the variable's number, or `standard` if it is unset. Reports and ignores one that is not from `least`
 * to `most`.
 */
static double read_number(const char *name, double least, double most, double standard)
{
	const char *text = secure_getenv(name);
	char from[DECIMAL_BYTES], to[DECIMAL_BYTES];
	double number;
	if (!text || !*text)
		return standard;
	if (decimal_read(text, &number) && number >= least && number <= most)
		return number;
	dprintf(2, "kops-blas: ignoring %s=\"%s\": expected a number from %s to %s\n", name, text,
	        decimal_write(from, least), decimal_write(to, most));
	return standard;
}

static void read_threshold(void)
{
	double side = read_number("KOPS_BLAS_THRESHOLD", 0, INFINITY, -1);
	settings.automatic = side < 0;
	settings.threshold = settings.automatic ? SMALLEST : side * side * side;
}

/* Returns what the program's other BLAS may use, since both share the CPUs. */
static unsigned others_threads(void)
{
	static const char *const names[] = {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"};
	for (int i = 0; i < 2; i++) {
		const char *text = secure_getenv(names[i]);
		int n = text ? atoi(text) : 0;
		if (n > 0)
			return (unsigned)n;
	}
	return THREADS_STANDARD;
}

static void read_threads(void)
{
	unsigned most = others_threads(), n = cpus_count();
	if (most > THREADS_STANDARD)
		most = THREADS_STANDARD;
	settings.threads = (unsigned)read_number("KOPS_BLAS_THREADS", 1, THREADS_MAX, n < most ? n : most);
}

int settings_verbose(void)
{
	const char *text = secure_getenv("KOPS_BLAS_VERBOSE");
	return text && !is_kopsd() ? atoi(text) : 0;
}

bool settings_alloc(void)
{
	const char *text = secure_getenv("KOPS_BLAS_ALLOC");
	return text && !is_kopsd() && atoi(text) > 0;
}

static void read_all(void)
{
	struct guard guard;
	guard_begin(&guard);
	read_threshold();
	read_threads();
	settings.verbose = settings_verbose();
	settings.pblas_block = (int32_t)read_number("KOPS_PBLAS_BLOCK", 1, PBLAS_BLOCK_MAX, PBLAS_BLOCK);
	if (is_kopsd())
		settings = (struct settings){.threshold = INFINITY};
	guard_end(&guard);
}

const struct settings *settings_get(void)
{
	pthread_once(&once, read_all);
	return &settings;
}
