/* samples.h: measured times and their order statistics. */
#ifndef KOPS_BENCH_REPORT_SAMPLES_H
#define KOPS_BENCH_REPORT_SAMPLES_H

#include <stddef.h>

#include "json.h"

struct samples {
	double *us;
	size_t n, room;
};

/* Makes room for `room` samples. Returns 0 or KOPS_E_NOMEM. Free with samples_free(). */
int samples_init(struct samples *samples, size_t room);
void samples_free(struct samples *samples);           /* also accepts zeros */
void samples_add(struct samples *samples, double us); /* drops samples beyond the room */

/* Sorts, and returns the p-th quantile, 0 <= p <= 1, by nearest rank. 0 without samples. */
double samples_quantile(struct samples *samples, double p);

/* Writes an object {min_us, p50_us, p99_us, max_us}. */
void samples_json(struct json *json, const char *key, struct samples *samples);

#endif
