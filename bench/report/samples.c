#include "report/samples.h"

#include <math.h>
#include <stdlib.h>

#include "kops.h"

int samples_init(struct samples *samples, size_t room)
{
	*samples = (struct samples){.us = calloc(room, sizeof(double)), .room = room};
	return samples->us ? 0 : KOPS_E_NOMEM;
}

void samples_free(struct samples *samples)
{
	free(samples->us);
}

void samples_add(struct samples *samples, double us)
{
	if (samples->n < samples->room)
		samples->us[samples->n++] = us;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double samples_quantile(struct samples *samples, double p)
{
	if (samples->n == 0)
		return 0;
	qsort(samples->us, samples->n, sizeof(double), ascending);
	double rank = ceil(p * (double)samples->n);
	return samples->us[rank < 1 ? 0 : (size_t)rank - 1];
}

void samples_json(struct json *json, const char *key, struct samples *samples)
{
	json_object(json, key);
	json_us(json, "min_us", samples_quantile(samples, 0));
	json_us(json, "p50_us", samples_quantile(samples, 0.5));
	json_us(json, "p99_us", samples_quantile(samples, 0.99));
	json_us(json, "max_us", samples_quantile(samples, 1));
	json_close_object(json);
}
