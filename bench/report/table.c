#include "report/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const mode_names[BENCH_MODES] = {"cold", "warm", "host"};

const char *bench_mode_name(enum bench_mode mode)
{
	return mode_names[mode];
}

void bench_put(char *to, size_t room, const char *from)
{
	size_t n = strlen(from);

	for (; n >= room || (from[n] & 0xc0) == 0x80; n--)
		;
	memcpy(to, from, n);
	to[n] = '\0';
}

struct bench_head bench_head_blank(void)
{
	struct bench_head head = {
	    .fma_gflops = (double)NAN, .memory_gbytes = (double)NAN, .cache_gbytes = (double)NAN};

	return head;
}

struct bench_row bench_row_blank(void)
{
	struct bench_row row = {.flops = (double)NAN,
	                        .bytes = (double)NAN,
	                        .min_us = (double)NAN,
	                        .median_us = (double)NAN,
	                        .max_us = (double)NAN,
	                        .peer_us = (double)NAN,
	                        .max_error = (double)NAN,
	                        .error_to_bound = (double)NAN,
	                        .upload_us = (double)NAN,
	                        .compute_us = (double)NAN,
	                        .download_us = (double)NAN};

	return row;
}

int bench_table_add(struct bench_table *table, const struct bench_row *row)
{
	if (table->n == table->room) {
		size_t room = table->room ? 2 * table->room : 64;
		struct bench_row *rows = reallocarray(table->rows, room, sizeof(*rows));
		if (rows == NULL)
			return KOPS_E_NOMEM;
		table->rows = rows;
		table->room = room;
	}
	table->rows[table->n++] = *row;
	return 0;
}

void bench_table_free(struct bench_table *table)
{
	free(table->rows);
	*table = (struct bench_table){0};
}

bool bench_row_measured(const struct bench_row *row)
{
	return row->median_us > 0;
}

/* 1e-3 FLOPs or bytes per microsecond are a GFLOP/s or GB/s. */
double bench_row_gflops(const struct bench_head *head, const struct bench_row *row)
{
	(void)head;
	return bench_row_measured(row) ? row->flops / row->median_us * 1e-3 : (double)NAN;
}

double bench_row_gbytes(const struct bench_head *head, const struct bench_row *row)
{
	(void)head;
	return bench_row_measured(row) ? row->bytes / row->median_us * 1e-3 : (double)NAN;
}

double bench_row_speed(const struct bench_head *head, const struct bench_row *row)
{
	return head->counts_flops ? bench_row_gflops(head, row) : bench_row_gbytes(head, row);
}

double bench_row_ceiling(const struct bench_head *head, const struct bench_row *row)
{
	double memory = row->mode == BENCH_COLD   ? head->memory_gbytes
	                : row->mode == BENCH_WARM ? head->cache_gbytes
	                                          : (double)NAN;

	if (!head->counts_flops)
		return memory;
	if (isnan(memory) || isnan(head->fma_gflops) || row->tensor_cores)
		return (double)NAN;
	return fmin(head->fma_gflops, row->flops / row->bytes * memory);
}

double bench_row_ceiling_percent(const struct bench_head *head, const struct bench_row *row)
{
	return 100 * bench_row_speed(head, row) / bench_row_ceiling(head, row);
}

double bench_row_peer_percent(const struct bench_head *head, const struct bench_row *row)
{
	(void)head;
	return 100 * row->peer_us / row->median_us;
}
