#include <math.h>
#include <string.h>

#include "bench.h"
#include "cases.h"
#include "dtype.h"
#include "measure.h"
#include "operands.h"

#define REPS       10
#define STREAM_GPU (3ull << 30) /* bytes read and written */
#define STREAM_CPU (192ull << 20)
#define CACHE_CPU  (32ull << 20) /* largest part of the last level: other programs use it too */

/* The measurement of a ceiling, by the kernel that kopsd prefers. */
struct probe {
	const char *op;
	kops_dtype dtype;
	uint64_t rows, columns;
	enum bench_mode mode;
};

/* Leaves *ret_row blank if the device has no room for the operands. */
static int run_probe(struct bench *b, const struct probe *probe, struct bench_row *ret_row)
{
	struct bench_shape shape = {.extents = {probe->rows, probe->columns}};
	struct measurement what = {.mode = probe->mode, .reps = REPS};
	struct operands operands = {.n_sets = 0};
	struct step step;

	*ret_row = bench_row_blank();
	int rc = bench_shape_step(operation_by_name(probe->op), probe->dtype, &shape, NULL, &step, b->why);
	if (rc < 0)
		return rc;
	size_t sets = probe->mode == BENCH_COLD ? operands_cold_sets(b, bench_footprint(&step)) : 1;
	rc = operands_make(b, &step, sets, &operands);
	if (rc == 0)
		rc = measure(b, &what, &operands, ret_row);
	ret_row->median_us = ret_row->min_us; /* a ceiling is the best sample */
	operands_free(&operands);
	return bench_is_refusal(rc) ? 0 : rc;
}

/* Measures with ops that only move bytes, as STREAM does. Reading alone may be a little faster than writing. */
static int stream_rate(struct bench *b, uint64_t bytes, enum bench_mode mode, double *ret_gbytes)
{
	static const struct {
		const char *op;
		unsigned operands;
	} streams[] = {{"copy", 2}, {"add", 3}};

	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		struct probe probe = {.op = streams[i].op, .dtype = KOPS_F32, .rows = 1, .mode = mode};
		struct bench_head head = {.op = "copy"};
		struct bench_row row;
		probe.columns = bytes / streams[i].operands / sizeof(float);
		int rc = run_probe(b, &probe, &row);
		if (rc < 0)
			return rc;
		*ret_gbytes = fmax(*ret_gbytes, bench_row_gbytes(&head, &row));
	}
	return 0;
}

/* Takes the best of several footprints: small ones are dominated by launching, large ones exceed the cache. */
static int cache_rate(struct bench *b, uint64_t cache_bytes, double *ret_gbytes)
{
	for (uint64_t eighths = 6; eighths > 0 && cache_bytes > 0; eighths--) {
		int rc = stream_rate(b, cache_bytes / 8 * eighths, BENCH_WARM, ret_gbytes);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Returns false for tensor cores, whose ceiling is not the FMA rate. */
static bool counts_fma(const struct bench *b)
{
	kops_precision precision = b->cli->flags.precision;

	return kops_dtype_size(dtype_component(b->dtype)) >= 4 && precision != KOPS_PRECISION_TF32 &&
	       precision != KOPS_PRECISION_BF16;
}

static double to_thousandths(double rate)
{
	return round(rate * 1e3) / 1e3;
}

int bench_ceilings(struct bench *b, struct bench_head *head)
{
	bool cpu = strcmp(b->kind, "cpu") == 0;
	uint64_t cache_bytes = b->device->cache_bytes;
	struct opt_real fma_rate = b->cli->flags.fma_rate;

	if (fma_rate.set && counts_fma(b))
		head->fma_gflops = to_thousandths(fma_rate.value);
	int rc = stream_rate(b, cpu ? STREAM_CPU : STREAM_GPU, BENCH_COLD, &head->memory_gbytes);
	if (rc == 0)
		rc = cache_rate(b, cpu && cache_bytes > CACHE_CPU ? CACHE_CPU : cache_bytes,
		                &head->cache_gbytes);
	head->memory_gbytes = to_thousandths(head->memory_gbytes);
	head->cache_gbytes = to_thousandths(head->cache_gbytes);
	return rc;
}
