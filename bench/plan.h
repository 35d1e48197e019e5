/*
 * plan.h: what one `kops-bench OP` is to do, from the command line and from what the device has.
 */
#ifndef KOPS_BENCH_PLAN_H
#define KOPS_BENCH_PLAN_H

#include "bench.h"
#include "cases.h"
#include "report/report.h"

struct bench_plan {
	struct bench bench;
	const struct operation *op;
	struct bench_shapes shapes;
	struct bench_kernels kernels;
	bool cold, warm, check;
	const char *peer;  /* kernel of the same op that the others are measured by; NULL: none */
	bool peer_is_copy; /* a copy of as many bytes instead */
	struct bench_row peers[BENCH_MODES]; /* of the shape at hand */
	struct bench_table table;
	struct bench_widths widths;
};

/* From cli->flags and the argument after OP, or NULL. An exit code. */
int plan_settle(struct bench_plan *plan, const char *argument);

/* Connects and settles what depends on the device; measures its ceilings. An exit code. */
int plan_prepare(struct bench_plan *plan);

#endif
