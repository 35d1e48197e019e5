/*
 * table.h: the results of `kops-bench OP`: one head, one row per shape, kernel and mode, and derived figures.
 * Text, JSON and CSV are all written from it.
 *
 * An unknown real number (a row that refused, a ceiling that was not measured) is NaN.
 */
#ifndef KOPS_BENCH_REPORT_TABLE_H
#define KOPS_BENCH_REPORT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops.h"
#include "op/operation.h"

/* Where a kernel finds its operands. */
enum bench_mode {
	BENCH_COLD, /* in the device's memory, and in none of its caches */
	BENCH_WARM, /* in the device's cache, from the run before */
	BENCH_HOST, /* in SHARED memory; times are wall times */
	BENCH_MODES,
};

struct bench_head {
	char op[16], dtype[8], precision[8], input[16], device[32], description[160];
	bool counts_flops;          /* the op is judged by FLOPs; otherwise by bytes */
	uint64_t seed, cache_bytes; /* cache_bytes: of the device; 0: unknown */
	/*
	 * Ceilings: the FMA rate is given; the others are measured by the device's own copy and add in the same
	 * run.
	 */
	double fma_gflops, memory_gbytes, cache_gbytes;
};

struct bench_row {
	char shape[BENCH_SHAPE_BYTES], kernel[64];
	enum bench_mode mode;
	uint64_t sets, launches, samples; /* launches per sample, over the sets in turn */
	double flops, bytes;              /* per launch, counted from the shapes */
	uint64_t footprint_bytes;         /* bytes of one set of operands */
	double min_us, median_us, max_us; /* per launch */
	char peer[64];
	double peer_us;                   /* the peer's median; "" and NaN: no peer */
	double max_error, error_to_bound; /* NaN: not checked */
	bool wrong;
	bool tensor_cores;  /* the FMA rate is no ceiling */
	bool larger_errors; /* perhaps larger than the precision allows: `auto` may not take it */
	char note[256];     /* why it refused, and other remarks */
	/* Only in JSON. */
	char why[128], passed_over[512];
	double upload_us, compute_us, download_us; /* medians of receipts, host to host */
};

struct bench_table {
	struct bench_head head;
	struct bench_row *rows;
	size_t n, room;
};

/* Returns "cold", "warm" or "host". */
const char *bench_mode_name(enum bench_mode mode);

/* Copies as many whole characters as fit. */
void bench_put(char *to, size_t room, const char *from);

/* Return a head and a row without any figures. */
struct bench_head bench_head_blank(void);
struct bench_row bench_row_blank(void);

/* Keeps a copy. Returns 0 or KOPS_E_NOMEM. Free with bench_table_free(), which also accepts zeros. */
int bench_table_add(struct bench_table *table, const struct bench_row *row);
void bench_table_free(struct bench_table *table);

bool bench_row_measured(const struct bench_row *row);

/* Return rates at the median. NaN if not measured. */
double bench_row_gflops(const struct bench_head *head, const struct bench_row *row);
double bench_row_gbytes(const struct bench_head *head, const struct bench_row *row);
/* Returns the rate that the op is judged by. */
double bench_row_speed(const struct bench_head *head, const struct bench_row *row);

/*
 * Returns the most that the device allows the row, in the unit of bench_row_speed(). For bytes this is the
 * memory rate. For FLOPs it is the lower of the FMA rate and what the memory rate can feed. Warm rows use the
 * cache's rate instead. NaN if the ceilings are unknown, as for products on tensor cores.
 */
double bench_row_ceiling(const struct bench_head *head, const struct bench_row *row);
double bench_row_ceiling_percent(const struct bench_head *head, const struct bench_row *row);
double bench_row_peer_percent(const struct bench_head *head, const struct bench_row *row);

#endif
