/*
 * run.h: a job as devices see it: its ops, the memory that they use, their plan, and their progress.
 */
#ifndef KOPS_RUN_H
#define KOPS_RUN_H

#include "base/list.h"
#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum memory_pin {
	MEMORY_PAGEABLE, /* not registered for DMA */
	MEMORY_PINNING,  /* a device thread is registering it; others treat it as pageable */
	MEMORY_PINNED,
};

/* One buffer's bytes, as views name them in view.space. */
struct memory {
	void *host;        /* mapping in this process, once made; NULL for RESIDENT */
	void *device;      /* RESIDENT: address on `owner`; NULL until allocated */
	const void *owner; /* RESIDENT: the struct device_state that holds it; else NULL */
	uint64_t bytes;
	bool read_only; /* mapped without PROT_WRITE */
	int pin;        /* enum memory_pin; accessed with __atomic builtins */
	/* For plans, approximate, of SHARED memory: bytes that nobody has written yet, and bytes that jobs have
	 * reached. */
	uint64_t missing_bytes, reached_bytes;
};

/* One op of a run. The loop thread fills args, pinned, preferred and sharing_first. plan() fills the rest,
 * except compute_us. */
struct run_op {
	struct op_args args; /* views: space = struct memory *, offset set; data is for the driver */
	const char *pinned;  /* the name of the kernel asked for, or "" */
	const struct preference *preferred; /* what jobs of the shape showed; NULL: nothing */
	/* The choice may depend on what was launched before. So many equal ops share the cost of a first launch
	 * (kernel.h: first_ns). 0: it must not. */
	unsigned sharing_first;
	const struct kernel *kernel;
	/* By plan(): a kernel for later ops of this shape, of which the driver should get a first launch over
	 * with, off the path of any run. NULL: none. */
	const struct kernel *first_launch;
	bool larger_errors; /* errors may exceed the precision: kernel_is_accurate() */
	char why[WHY_BYTES], passed_over[PASSED_OVER_BYTES];
	double plan_us;    /* planned time of the op alone; 0: it has nothing to compute */
	double compute_us; /* 0: not timed */
	/* Operands of which a run on another device uploads half (exchange.h): bit v, and the bytes per us at
	 * which they come from there. 0: none. */
	struct {
		unsigned operands;
		double rate;
	} shared;
	struct op_cut cut;     /* by plan(): its parts, which are short enough */
	unsigned together;     /* by plan(): the most equal ops in one launch */
	struct op_shape shape; /* as the client sent it; the views in args are folded */
};

/* An op planned to take longer is cut into parts, if possible. Others may run between two parts. */
#define PART_US 50e3

/* What a GPU's long kernels leave to other users. */
enum run_room {
	RUN_KEEPS_ALL,
	RUN_LEAVES_ROOM, /* some multiprocessors, by kernels that lose nothing by it */
	RUN_IS_CONFINED, /* the same, and others are kept off these, which may cost them 3 % */
};

/*
 * A job on a device. It is borrowed from start() until poll() returns it. That may be before its end: a run
 * that paused between two parts continues with the next start().
 */
struct run {
	/* The work. */
	struct run_op *ops;
	unsigned n_ops;
	bool timed;              /* time the ops by the device's clock, at any cost */
	bool repeats;            /* it ran before with this plan, and may repeat often */
	bool has_first_launches; /* by plan(): an op has. Then plan it anew before it runs again */
	bool watched;            /* the loop polls for its end */
	enum run_room room;
	uint64_t lane;      /* runs of the same lane execute in order */
	double plan_us;     /* by plan(): time for its ops and everything else; later what its runs showed */
	double estimate_us; /* by plan(): the same, and stays */
	/* On a device that computes at once: pause before the next part from this time on (clock.h). Atomic;
	 * NULL: never. Each start makes some progress. */
	const uint64_t *pause_at_ns;
	void *owner; /* the submitter's; the driver does not use it */
	/* How operands are staged (stage.h) on a device with memory of its own. Other drivers use it while they
	 * have the run. NULL: nothing; run_forget_plan() frees it. */
	void *planned;

	/* The device's thread writes these while the run is in flight. They are adjacent, because each cache
	 * line that two threads write alternately costs each run 0.1 us. */
	/* The next part to start. Both 0 at first; next_op == n_ops: the run has ended. */
	unsigned next_op;
	uint32_t next_part;
	uint32_t parts_done; /* atomic: finished parts of all ops, or parts enqueued on a GPU; for watchers */
	int status;          /* below 0: the run has failed, and error says why */
	bool as_graph;       /* the GPU got the whole run as one CUDA graph */
	double slice_us;     /* time since its last start */
	double upload_us, compute_us, download_us;
	/* private to the driver while the run is in flight */
	void *state;
	struct list_link link; /* the driver's, from start() to poll() */

	void (*forget_plan)(struct run *run);
	uint64_t room_bytes;   /* for plan(): the device memory that it may use; 0: all that there is */
	uint64_t device_bytes; /* by plan(): staging and workspace, without RESIDENT buffers */
	/* Of operands that another run shares (exchange.h); which of the two it is, 0 or 1. NULL: none. */
	struct exchange *exchange;
	unsigned side;
	char error[WHY_BYTES];
};

/* Frees what plan() keeps for start(), before the run is planned again or if it does not start again. */
static inline void run_forget_plan(struct run *run)
{
	if (run->planned)
		run->forget_plan(run);
	run->planned = NULL;
}

/* The planned time of the op's longest part, and of one in the mean. */
static inline double run_part_us(const struct run_op *op)
{
	return op->plan_us * op->cut.share;
}

static inline double run_mean_part_us(const struct run_op *op)
{
	return op->cut.n_parts > 1 ? op->plan_us / op->cut.n_parts : op->plan_us;
}

static inline bool run_is_through(const struct run *run)
{
	return run->next_op == run->n_ops;
}

/* Returns true if a device that splits runs into slices takes this one as a single slice. */
static inline bool run_is_one_slice(const struct run *run)
{
	double us = 0;

	for (unsigned i = 0; i < run->n_ops; i++)
		us += run->ops[i].plan_us;
	return us <= PART_US;
}

/* Returns true if it should take as long as the last time. Slices may end otherwise than planned: the plan is
 * of the whole. */
static inline bool run_ends_as_before(const struct run *run)
{
	return run->repeats && run_is_one_slice(run);
}

/* Call it at each start(). A run that has ended begins again. */
static inline void run_begin(struct run *run)
{
	if (run_is_through(run))
		run->next_op = run->next_part = 0;
	run->slice_us = 0;
	if (run->next_op > 0 || run->next_part > 0)
		return;
	run->upload_us = run->compute_us = run->download_us = 0;
	__atomic_store_n(&run->parts_done, 0, __ATOMIC_RELAXED);
}

/* Advances to the next part. */
static inline void run_advance(struct run *run)
{
	__atomic_store_n(&run->parts_done, run->parts_done + 1, __ATOMIC_RELAXED);
	if (++run->next_part < run->ops[run->next_op].cut.n_parts)
		return;
	run->next_part = 0;
	run->next_op++;
}

/* The planned time of what is left. */
static inline double run_left_us(const struct run *run)
{
	double us = 0;

	for (unsigned i = run->next_op; i < run->n_ops; i++) {
		double share = i == run->next_op ? (double)run->next_part / run->ops[i].cut.n_parts : 0;
		us += run->ops[i].plan_us * (1 - share);
	}
	return us;
}

/* Neither RESIDENT nor absent. */
static inline bool view_is_in_host_memory(const struct view *v)
{
	const struct memory *m = v->space;

	return m && !m->owner;
}

/*
 * The address of element (0, …) of a view in memory that the CPU, or the device holding it, can access
 * directly.
 */
static inline void *memory_at(const struct memory *m, uint64_t offset)
{
	uintptr_t base = (uintptr_t)(m->host ? m->host : m->device); /* may be 0 while a run is planned */
	return (void *)(base + offset);
}

#ifdef __cplusplus
}
#endif

#endif
