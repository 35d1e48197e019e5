/* heavy.h: a user in a process of its own, which keeps a device busy until it is told to rest. */
#ifndef KOPS_BENCH_BESIDE_HEAVY_H
#define KOPS_BENCH_BESIDE_HEAVY_H

#include <sys/types.h>

#include "beside/worker.h"

#define HEAVIES_MAX 2

struct heavy {
	int sock;
	pid_t child;
	uid_t uid;
};

/*
 * Starts the process, under another uid if that is not the caller's, and waits until it is connected to kopsd.
 * The caller has no open handle. `out`: jobs that it keeps out, up to WORKER_OUT_MAX. Returns 0, or KOPS_E_*
 * with a sentence in why, and nothing to stop.
 */
int heavy_start(struct heavy *ret, const struct cli *cli, uid_t uid, unsigned out, char *why);
void heavy_stop(struct heavy *heavy);

/* These return 0 or KOPS_E_* with a sentence in why. */

/* Prepares the load until its kernels are settled, which takes seconds, and goes on with it. */
int heavy_run(struct heavy *heavy, const struct load *load, char *why);
/* Tells what it did up to the end of a job, a later one in each call. Blocks until then. */
int heavy_count(struct heavy *heavy, struct reply *ret, char *why);
/* Ends the load and frees its memory. Blocks until its jobs are done. */
int heavy_rest(struct heavy *heavy, char *why);

/* Jobs a second, and device time as a part of the time. */
struct rate {
	double per_second, device_share;
};

/* Zeros if no time passed. */
struct rate done_between(const struct done *first, const struct done *last);

/* Measures n <= HEAVIES_MAX that run: for so long, and until each has done a few jobs. *ret: n of them. */
int heavies_rates(struct heavy *heavies, size_t n, double us, struct rate *ret, char *why);

#endif
