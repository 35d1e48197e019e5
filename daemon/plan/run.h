/*
 * run.h: a job as devices see it: its ops, the memory that they touch, what the planner decided for each, and
 * how far it has come.
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
	MEMORY_PINNING,  /* a device thread is at it; others treat it as pageable */
	MEMORY_PINNED,
};

/* One buffer's bytes, as views name them in view.space. */
struct memory {
	void *host;        /* mapping in this process, once it is made; NULL for RESIDENT */
	void *device;      /* RESIDENT: address on `owner`; NULL until allocated */
	const void *owner; /* RESIDENT: the struct backend_device that holds it; else NULL */
	uint64_t bytes;
	bool read_only; /* mapped without PROT_WRITE */
	int pin;        /* enum memory_pin; accessed with __atomic builtins */
	/* For plans, of SHARED memory, about: what nobody has written yet, and what jobs have reached. */
	uint64_t missing_bytes, reached_bytes;
};

/* One op of a run. The loop thread fills args, pinned and preferred, plan() the rest but compute_us. */
struct run_op {
	struct op_args args; /* views: space = struct memory *, offset set; data is for the backend */
	const char *pinned;  /* kernel asked for by name, or "" */
	const struct preference *preferred; /* by what jobs of the shape showed; NULL: nothing */
	const struct kernel *kernel;
	bool larger_errors; /* than the precision allows, perhaps: kernel_is_accurate() */
	char why[WHY_BYTES], passed_over[PASSED_OVER_BYTES];
	double plan_us; /* the time that the op alone is planned to take; 0 where it has nothing to compute */
	double compute_us;     /* 0 where not timed */
	struct op_cut cut;     /* by plan(): into parts that are short enough */
	unsigned together;     /* by plan(): so many of its like are one launch, at most */
	struct op_shape shape; /* as its client sent it: args' views are folded */
};

/* An op planned to be longer is cut into parts, if it can be, and others may go between any two of them. */
#define PART_US 50e3

/*
 * A job in a device's hands. Borrowed from start() until poll() gives it back, which may be before its end: a
 * run that is paused between two parts goes on with the next start().
 */
struct run {
	/* What is to be done. */
	struct run_op *ops;
	unsigned n_ops;
	bool timed;     /* time the ops by the device's own clock, whatever it costs */
	bool repeats;   /* it ran before with this plan, and may many times more */
	bool watched;   /* its caller looks for its end without sleeping */
	uint64_t lane;  /* runs of equal lane execute in order */
	double plan_us; /* by plan(): the time it will take, its ops' and what comes with them */
	/* On a device that computes at once: when this time has come (clock.h), pause before the next part.
	 * Atomic; NULL: never. A run makes progress at each start. */
	const uint64_t *pause_at_ns;
	void *owner; /* whoever submitted it; the backend leaves it alone */
	/* How the operands are staged (stage.h) on a device with memory of its own; on others the driver's,
	 * while it has the run. NULL: nothing; forgotten with run_forget_plan(). */
	void *planned;

	/* The device's thread writes these while the run is out. So they lie together: each cache line that two
	 * threads write by turns costs each run 0.1 us. */
	/* Where it is: the next part to start. Both at first 0; n_ops: it is through. */
	unsigned next_op;
	uint32_t next_part;
	uint32_t parts_done; /* atomic: of all ops, or enqueued on a GPU: for who watches it */
	int status;          /* below 0 it does not go on, and error says why */
	bool as_graph;       /* the GPU got all of it by one call, as a CUDA graph */
	double slice_us;     /* what it has taken since it was last started */
	double upload_us, compute_us, download_us;
	/* private to the backend while the run is out */
	void *state;
	struct list_link link; /* the backend's, from start() to poll() */

	void (*forget_plan)(struct run *run);
	uint64_t device_bytes; /* by plan(): staging and workspace, not RESIDENT buffers */
	char error[WHY_BYTES];
};

/* Frees what plan() keeps for start(): of a run that is planned anew, or is not started any more. */
static inline void run_forget_plan(struct run *run)
{
	if (run->planned)
		run->forget_plan(run);
	run->planned = NULL;
}

/* By plan: the longest part. */
static inline double run_part_us(const struct run_op *op)
{
	return op->plan_us * op->cut.share;
}

static inline bool run_is_through(const struct run *run)
{
	return run->next_op == run->n_ops;
}

/* Whether a device that takes a run slice by slice takes all of it at once. */
static inline bool run_is_one_slice(const struct run *run)
{
	double us = 0;

	for (unsigned i = 0; i < run->n_ops; i++)
		us += run->ops[i].plan_us;
	return us <= PART_US;
}

/* At each start(): one that is through begins again. */
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

/* On to the part after the next. */
static inline void run_advance(struct run *run)
{
	__atomic_store_n(&run->parts_done, run->parts_done + 1, __ATOMIC_RELAXED);
	if (++run->next_part < run->ops[run->next_op].cut.n_parts)
		return;
	run->next_part = 0;
	run->next_op++;
}

/* By plan, what is left of it. */
static inline double run_left_us(const struct run *run)
{
	double us = 0;

	for (unsigned i = run->next_op; i < run->n_ops; i++) {
		double share = i == run->next_op ? (double)run->next_part / run->ops[i].cut.n_parts : 0;
		us += run->ops[i].plan_us * (1 - share);
	}
	return us;
}

/*
 * The address of element (0, …) of a view whose memory the CPU, or the device holding it, can
 * reach directly.
 */
static inline void *memory_at(const struct memory *m, uint64_t offset)
{
	uintptr_t base = (uintptr_t)(m->host ? m->host : m->device); /* 0 while a run is planned, perhaps */
	return (void *)(base + offset);
}

#ifdef __cplusplus
}
#endif

#endif
