/*
 * worker.h: the heavy user's process, and what is said between it and the process that measures.
 *
 * The worker answers each order with one message. While it runs a load it answers after a job was done, so that
 * counts and times in its answers are those of the end of a job.
 */
#ifndef KOPS_BENCH_BESIDE_WORKER_H
#define KOPS_BENCH_BESIDE_WORKER_H

#include "beside/load.h"
#include "cli.h"

#define WORKER_OUT_MAX 64

struct order {
	enum { ORDER_RUN, ORDER_COUNT, ORDER_REST } kind;
	struct load load; /* of ORDER_RUN */
};

/* What was done since the first job of the load, the time by cli_now_us(). */
struct done {
	uint64_t jobs;
	double at_us, device_us;
};

struct reply {
	int status;
	struct done done;
	char kernel[32]; /* of the first op of the latest job */
	char why[CLI_WHY_BYTES];
};

/*
 * Connects to kopsd, says whether that went well, and obeys orders until the other end of the socket is closed.
 * Keeps `out` jobs in flight. Runs in a child of fork(), before which no handle was opened, and ends it.
 */
_Noreturn void worker_serve(int sock, const struct cli *cli, unsigned out);

#endif
