/*
 * backend.h: what one kind of device can do for kopsd. device/cpu.c is built in; cuda/ is
 * the module kops-cuda.so, which exports BACKEND_ENTRY and nothing else.
 *
 * Threads: every function runs on the device's own thread (device.c), except those marked "any
 * thread". A backend never logs; it returns a code and a sentence.
 */
#ifndef KOPS_BACKEND_H
#define KOPS_BACKEND_H

#include <string.h>

#include "base/list.h"
#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BACKEND_ABI   17
#define BACKEND_ENTRY "kops_backend"

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
	/* What plan() found out and start() goes by. NULL: nothing; forgotten with run_forget_plan(). */
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

struct device_info {
	char description[128];
	uint64_t memory_bytes; /* usable by runs and RESIDENT buffers */
	uint64_t cache_bytes;  /* last level of cache; 0: not known */
	unsigned depth;        /* runs that are worth having out at once, */
	double depth_us;       /* as long as those out are planned to take no longer; */
	double crowd_us;       /* any number, planned to take no longer than this: they may go together */
	double link_rate;      /* bytes in a us to and from pinned host memory; 0: it computes there */
};

/* 0: it does not say. */
struct device_sensors {
	double temperature_c, power_w, power_limit_w;
	uint64_t memory_used_bytes, memory_free_bytes; /* by all programs */
	bool has_utilization;
	double utilization; /* share of the last second or so in which it worked for any program */
};

struct backend_device; /* opaque, one per device */

struct backend {
	uint32_t abi;     /* BACKEND_ABI */
	const char *kind; /* "cpu", "gpu" */

	/* Any thread. How many devices there are; on failure 0 and a sentence (no driver, …). */
	unsigned (*count)(char why[WHY_BYTES]);

	/* threads: CPU threads the backend may use for one op (0: as many as the process may run on). */
	int (*open)(unsigned index, unsigned threads, struct backend_device **ret_dev, char why[WHY_BYTES]);
	void (*close)(struct backend_device *dev); /* NULL allowed; no run may be out */
	void (*describe)(const struct backend_device *dev, struct device_info *ret); /* any thread */

	/* Any thread, and may take milliseconds: fills in what the device says, of zeros. NULL: nothing. */
	void (*sense)(const struct backend_device *dev, struct device_sensors *ret);

	/* Any thread. Kernels for an op; an empty list for an op unknown here. */
	const struct kernel_list *(*kernels)(const struct op *op);
	/* Any thread, before the first plan(): kernel i of op is out of order. */
	void (*disable)(struct backend_device *dev, const struct op *op, unsigned kernel);

	/*
	 * Any thread; pure but for what it keeps in run->planned. Chooses kernels for ops [first, end) and
	 * fills in their kernel and why. A plan begins with first == 0 and goes on from where it was, as far as
	 * the caller has time for; with the last op it fills run's device_bytes and plan_us.
	 * KOPS_E_UNSUPPORTED, KOPS_E_DEVICE (RESIDENT memory of another device), KOPS_E_NOMEM (more than the
	 * device has) with a sentence in run->error.
	 */
	int (*plan)(const struct backend_device *dev, struct run *run, unsigned first, unsigned end);
	/* Any thread; pure. See kernel_rivals(). NULL: no trials here. */
	unsigned (*rivals)(const struct backend_device *dev, const struct op_args *args,
	                   struct rival ret[RIVALS_MAX]);

	/*
	 * Begins a run or goes on with it. May compute at once (CPU), until it is asked to pause, or enqueue a
	 * slice of about PART_US (GPU), or hold it back until the next poll(), to start it with others that are
	 * alike. The run comes back through poll(), failed and paused ones too.
	 */
	void (*start)(struct backend_device *dev, struct run *run);
	/* The next finished run, or NULL when none is finished now. Never blocks. */
	struct run *(*poll)(struct backend_device *dev);
	/* Forgets a paused run that will not go on. NULL where there is nothing to forget. */
	void (*abandon)(struct backend_device *dev, struct run *run);
	/*
	 * Asks that wake(arg) be called, from any thread, once when some run that is out now finishes. NULL
	 * where start() computes at once.
	 */
	void (*notify)(struct backend_device *dev, void (*wake)(void *arg), void *arg);

	/* RESIDENT memory, zeroed. Both NULL where the device computes in host memory, which its owner then
	 * makes. */
	int (*alloc)(struct backend_device *dev, uint64_t bytes, void **ret_address);
	void (*free)(struct backend_device *dev, void *address);

	/* Any thread. Registers host memory for DMA by every device of this kind. Both NULL on the CPU. */
	int (*pin)(void *host, uint64_t bytes, bool read_only);
	void (*unpin)(void *host);
};

/* Plans all of it. */
static inline int backend_plan(const struct backend *backend, const struct backend_device *dev, struct run *run)
{
	return backend->plan(dev, run, 0, run->n_ops);
}

/* Frees what plan() keeps for start(): of a run that is planned anew, or is not started any more. */
static inline void run_forget_plan(struct run *run)
{
	if (run->planned)
		run->forget_plan(run);
	run->planned = NULL;
}

/*
 * For plan(): the op before, if what is decided for it holds for op i: they differ in nothing but where their
 * operands are in memory of the same owner. NULL: it is to be decided anew.
 */
static inline const struct run_op *run_like_before(const struct run *run, unsigned i)
{
	const struct run_op *op = &run->ops[i], *before = op - 1;

	if (i == 0 || op->preferred != before->preferred || strcmp(op->pinned, before->pinned) != 0 ||
	    !op_args_alike(&op->args, &before->args))
		return NULL;
	for (unsigned v = 0; v < op->args.op->n_operands; v++) {
		const struct memory *of_op = op->args.views[v].space, *of_before = before->args.views[v].space;

		if (of_op && of_op->owner != of_before->owner) /* absent in both, where it is in one */
			return NULL;
	}
	return before;
}

/* Of an op that is planned: the kernel, and why it is that one. */
static inline void run_choose_again(struct run_op *op, const struct run_op *before)
{
	op->kernel = before->kernel;
	op->larger_errors = before->larger_errors;
	memcpy(op->why, before->why, sizeof(op->why));
	memcpy(op->passed_over, before->passed_over, sizeof(op->passed_over));
}

/* By plan: the longest part. */
static inline double run_part_us(const struct run_op *op)
{
	return op->plan_us * op->cut.share;
}

/* For plan(): whether another kernel is to be looked for, by kernel_prefer_cut(). */
static inline bool run_is_uncut(const struct run_op *op)
{
	return !*op->pinned && run_part_us(op) > PART_US;
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
