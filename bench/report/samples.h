/* samples.h: measured times and their order statistics. */
#ifndef KOPS_BENCH_REPORT_SAMPLES_H
#define KOPS_BENCH_REPORT_SAMPLES_H

#include <stddef.h>

#include "json.h"

struct samples {
	double *us;
	size_t n, room;
};

/* Room for `room` samples; 0 or KOPS_E_NOMEM. Free with samples_free(). */
int samples_init(struct samples *samples, size_t room);
void samples_free(struct samples *samples);           /* allowed on a zeroed one */
void samples_add(struct samples *samples, double us); /* beyond the room: dropped */

/* The p-th quantile, 0 <= p <= 1, by nearest rank; sorts. 0 without samples. */
double samples_quantile(struct samples *samples, double p);

/* An object {min_us, p50_us, p99_us, max_us}. */
void samples_json(struct json *json, const char *key, struct samples *samples);

#endif
