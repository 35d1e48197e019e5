/* planner.h: a device as the planner sees it: its kernels, and facts from its driver (device/driver.h). */
#ifndef KOPS_PLANNER_H
#define KOPS_PLANNER_H

#include "plan/run.h"

/*
 * The most bytes that an operand in pinned host memory may span to be used in place, if its kernel can.
 * `streaming` is for ops with little arithmetic per byte, whose kernels read each element about once; `reusing`
 * is for the others.
 */
struct direct_limits {
	uint64_t streaming_max_bytes, reusing_max_bytes;
};

/* Facts for plans and for people. Times in us, rates in bytes per us. */
struct device_info {
	char description[128];
	uint64_t memory_bytes; /* usable by runs and RESIDENT buffers */
	uint64_t cache_bytes;  /* the last level of cache; 0: unknown */
	unsigned depth;        /* runs worth having out at once, */
	double depth_us;       /* while those out are planned to take no longer than this; */
	double crowd_us;       /* any number, planned to take no longer than this: they may share launches */
	double beside_us; /* a run planned to take no longer may be computed beside a longer one; 0: none */
	bool has_trials;  /* jobs are worth timing to choose among kernels */

	/* Added to the times that kernels estimate: for each run, and for each op with elements. */
	double run_us, op_us;
	uint64_t carried_max_bytes;        /* that an op's parts may pass to the next part */
	uint64_t kept_workspace_max_bytes; /* a larger workspace is allocated for each run, page by page */

	/* Of a device with memory of its own; link_rate 0: the device computes in host memory. */
	double link_rate;       /* to and from pinned host memory */
	double link_row_us;     /* what each row of a matrix with gaps takes more, */
	double link_far_row_us; /* if it is short and the next one lies far off (estimate.c) */
	double pageable_rate;   /* to and from other host memory */
	double gather_us;       /* the CPU's time for an element of pageable memory that is not contiguous */
	struct direct_limits direct;
	uint64_t stream_min_bytes; /* of operands in host memory: a run with fewer is not worth streaming
	                              (stage.h) */
};

struct device_state; /* opaque, one per device; defined by the driver */

/* A device as the planner sees it. Constant once its kernels were tested; then any thread may use it. */
struct planner {
	const struct kernel_list *(*kernels)(const struct op *op);
	void (*enter)(const struct device_state *dev); /* NULL: its kernels do not query the device */
	const struct device_state *dev;                /* the owner of RESIDENT memory on it */
	uint64_t id; /* no other device of this process had it; 0: none of its plans are kept for later jobs */
	struct device_info info;
	uint64_t disabled[OP_COUNT]; /* bit i: kernel i */
};

#endif
