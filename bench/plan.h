/* plan.h: what one `kops-bench OP` measures, from the command line and the device's facts. */
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
	const char *peer;  /* the kernel of the same op that others are compared with; NULL: none */
	bool peer_is_copy; /* a copy of as many bytes instead */
	struct bench_row peers[BENCH_MODES]; /* for the current shape */
	struct bench_table table;
	struct bench_widths widths;
};

/* Reads cli->flags and the argument after OP, or NULL. Returns an exit code. */
int plan_settle(struct bench_plan *plan, const char *argument);

/*
 * The op on operands of this shape, with the attributes and optional inputs that were asked for. As
 * bench_shape_step().
 */
int plan_step(const struct bench_plan *plan, const struct bench_shape *shape, struct step *ret, char *why);

/* Connects, settles what depends on the device, and measures its ceilings. Returns an exit code. */
int plan_prepare(struct bench_plan *plan);

#endif
