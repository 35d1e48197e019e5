/*
 * victim: measures how long one user waits for kopsd, for latency_under_attack.py.
 *
 *     victim SOCKET SECONDS
 *
 * Does round trips of several kinds in turn for SECONDS and prints one line for each kind. A rare kind is
 * skipped for a round while it has taken a quarter of the time: slow connections would leave too few samples of
 * the others for a p99. A rare round trip is followed by a product whose time does not count. Threads and CPUs
 * may sleep meanwhile, and waking them takes a virtual machine 0.2 ms, attacked or not.
 *
 *     KIND  COUNT  REFUSED  P50_US  P99_US  MAX_US
 *
 * A round trip that kopsd refuses counts as REFUSED and by its time. The first refusal of each kind goes to
 * stderr.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kops.h"

#define N           64        /* extents of the product */
#define ALLOC_BYTES (1 << 16) /* bytes of a buffer that is lent and given back */
#define SAMPLES_MAX (1 << 20)
#define TIMEOUT_MS  20000 /* a longer round trip fails and is reported as refused */
#define WHY_BYTES   256
#define RARE_MOST   0.25 /* largest share of the time for one rare kind */

struct victim {
	const char *socket;
	kops *k;
	kops_buffer *a, *b, *c;
};

struct kind {
	const char *name;
	int (*trip)(struct victim *v);
	unsigned every; /* made in one of `every` rounds */
	double *us, spent_us;
	size_t n, refused;
};

static int open_handle(const struct victim *v, kops **ret)
{
	char why[WHY_BYTES];
	kops_options options = {
	    .size = sizeof options, .socket = v->socket, .name = "victim", .timeout_ms = TIMEOUT_MS};
	int rc = kops_open(ret, &options, why, sizeof why);

	if (rc < 0)
		fprintf(stderr, "victim: %s\n", why);
	return rc;
}

static int trip_gemm(struct victim *v)
{
	return kops_sgemm(v->k, KOPS_N, KOPS_N, N, N, N, 1, v->a, N, v->b, N, 0, v->c, N);
}

static int trip_ping(struct victim *v)
{
	return kops_ping(v->k);
}

static int alloc(struct victim *v, unsigned flags)
{
	kops_buffer *buffer;
	int rc = kops_alloc(v->k, ALLOC_BYTES, flags, NULL, &buffer);

	if (rc == 0)
		kops_free(buffer);
	return rc;
}

static int trip_alloc(struct victim *v)
{
	return alloc(v, KOPS_SHARED);
}

static int trip_resident(struct victim *v)
{
	return alloc(v, KOPS_RESIDENT);
}

static int trip_connect(struct victim *v)
{
	kops *k;
	int rc = open_handle(v, &k);

	if (rc == 0)
		kops_close(k);
	return rc;
}

static struct kind kinds[] = {
    {.name = "gemm", .trip = trip_gemm, .every = 1},
    {.name = "ping", .trip = trip_ping, .every = 1},
    {.name = "alloc", .trip = trip_alloc, .every = 4},
    {.name = "resident", .trip = trip_resident, .every = 4},
    {.name = "connect", .trip = trip_connect, .every = 8},
};

#define KINDS (sizeof kinds / sizeof kinds[0])

/* Makes one round trip. Returns its time in us. */
static double make(struct victim *v, struct kind *kind)
{
	uint64_t start = clock_ns();
	int rc = kind->trip(v);
	double us = clock_us(start, clock_ns());

	if (rc < 0 && kind->refused++ == 0)
		fprintf(stderr, "victim: %s: %s: %s\n", kind->name, kops_strerror(rc), kops_error(v->k));
	return us;
}

static void take(struct victim *v, struct kind *kind)
{
	double us = make(v, kind);

	kind->spent_us += us;
	if (kind->n < SAMPLES_MAX)
		kind->us[kind->n++] = us;
	if (kind->every > 1)
		make(v, &kinds[0]);
}

static bool is_due(const struct kind *kind, unsigned round, double elapsed_us)
{
	return round % kind->every == 0 && (kind->every == 1 || kind->spent_us <= elapsed_us * RARE_MOST);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(const struct kind *kind, double q)
{
	return kind->n ? kind->us[(size_t)ceil(q * (double)(kind->n - 1))] : 0;
}

static void print(struct kind *kind)
{
	qsort(kind->us, kind->n, sizeof *kind->us, by_value);
	printf("%s %zu %zu %.1f %.1f %.1f\n", kind->name, kind->n, kind->refused, quantile(kind, 0.5),
	       quantile(kind, 0.99), quantile(kind, 1));
}

static bool set_up(struct victim *v)
{
	const uint64_t bytes = N * N * sizeof(float);

	for (size_t i = 0; i < KINDS; i++)
		if (!(kinds[i].us = calloc(SAMPLES_MAX, sizeof(double))))
			return false;
	return open_handle(v, &v->k) == 0 && kops_alloc(v->k, bytes, KOPS_SHARED, NULL, &v->a) == 0 &&
	       kops_alloc(v->k, bytes, KOPS_SHARED, NULL, &v->b) == 0 &&
	       kops_alloc(v->k, bytes, KOPS_SHARED, NULL, &v->c) == 0;
}

int main(int argc, char **argv)
{
	struct victim v = {.socket = argc == 3 ? argv[1] : NULL};

	if (argc != 3) {
		fprintf(stderr, "usage: victim SOCKET SECONDS\n");
		return 2;
	}
	if (!set_up(&v)) {
		fprintf(stderr, "victim: cannot start: %s\n", v.k ? kops_error(v.k) : "no handle");
		return 1;
	}
	uint64_t start = clock_ns(), end = start + (uint64_t)(atof(argv[2]) * 1e9);
	for (unsigned round = 0; clock_ns() < end; round++)
		for (size_t i = 0; i < KINDS; i++)
			if (is_due(&kinds[i], round, clock_us(start, clock_ns())))
				take(&v, &kinds[i]);
	for (size_t i = 0; i < KINDS; i++) {
		print(&kinds[i]);
		free(kinds[i].us);
	}
	kops_close(v.k);
	return 0;
}
