/* planner.h: a device as plans see it: its kernels, and facts that a driver (plan/backend.h) brings. */
#ifndef KOPS_PLANNER_H
#define KOPS_PLANNER_H

#include "plan/run.h"

/*
 * An operand in pinned host memory that spans no more bytes is used where it is, if its kernel can. `streaming`
 * is for ops with little arithmetic per byte, whose kernels read each element about once; `reusing` for the
 * others.
 */
struct direct_limits {
	uint64_t streaming_max_bytes, reusing_max_bytes;
};

/* What plans go by and people read. Times in us, rates in bytes per us. */
struct device_info {
	char description[128];
	uint64_t memory_bytes; /* usable by runs and RESIDENT buffers */
	uint64_t cache_bytes;  /* last level of cache; 0: not known */
	unsigned depth;        /* runs that are worth having out at once, */
	double depth_us;       /* as long as those out are planned to take no longer; */
	double crowd_us;       /* any number, planned to take no longer than this: they may go together */
	bool has_trials;       /* jobs are worth timing to choose among kernels */

	/* What is added to the time that kernels say they take: for a run, and for each op with elements. */
	double run_us, op_us;
	uint64_t carried_max_bytes;        /* that the parts of an op may hand on */
	uint64_t kept_workspace_max_bytes; /* a larger workspace is made anew for each run, page by page */

	/* Of a device with memory of its own; link_rate 0: it computes in host memory. */
	double link_rate;     /* to and from pinned host memory */
	double pageable_rate; /* to and from other host memory */
	double gather_us;     /* of the CPU for an element of such memory that is not in a row */
	struct direct_limits direct;
};

struct backend_device; /* opaque, one per device: the driver's */

/* A device as plans see it. Constant once its kernels have been tested, and then for any thread. */
struct planner {
	const struct kernel_list *(*kernels)(const struct op *op);
	void (*enter)(const struct backend_device *dev); /* NULL: its kernels ask nothing of the device */
	const struct backend_device *dev;                /* the owner of RESIDENT memory there */
	struct device_info info;
	uint64_t disabled[OP_COUNT]; /* bit i: kernel i */
};

#endif
