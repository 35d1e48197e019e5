/* light.h: the light user, who sends a small product host to host at regular times. */
#ifndef KOPS_BENCH_BESIDE_LIGHT_H
#define KOPS_BENCH_BESIDE_LIGHT_H

#include "bench.h"
#include "report/samples.h"

#define LIGHT_SIZE 64 /* of the product */

struct light {
	struct bench *bench;
	kops_buffer *operands;
	kops_job *job;
};

/* Wall times of the jobs from call to answer. */
struct light_times {
	struct samples wall;
	uint64_t late;                /* jobs that were due before the one before was done */
	double elapsed_us, device_us; /* device: of all the jobs together */
};

/* Makes the job and repeats it until it is settled. Returns 0, or KOPS_E_* with a sentence in the bench. */
int light_make(struct light *ret, struct bench *bench);
void light_free(struct light *light); /* also accepts zeros */

/*
 * Runs the job `count` times, every `every_us` at the earliest, or fewer times if that takes half a minute.
 * Free *ret with samples_free(&ret->wall), after a failure too.
 */
int light_measure(struct light *light, uint64_t count, uint64_t every_us, struct light_times *ret);

#endif
