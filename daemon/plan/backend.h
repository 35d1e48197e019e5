/*
 * backend.h: what one kind of device can do for kopsd: its facts and kernels, its memory, and how runs that are
 * planned (plan/planner.h) are started and come back. cpu/cpu.c is built in; cuda/ is the module
 * kops-cuda.so, which exports BACKEND_ENTRY and nothing else.
 *
 * Threads: every function runs on the device's own thread (device.c), except those marked "any
 * thread". A backend never logs; it returns a code and a sentence.
 */
#ifndef KOPS_BACKEND_H
#define KOPS_BACKEND_H

#include "plan/planner.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BACKEND_ABI   18
#define BACKEND_ENTRY "kops_backend"

/* 0: it does not say. */
struct device_sensors {
	double temperature_c, power_w, power_limit_w;
	uint64_t memory_used_bytes, memory_free_bytes; /* by all programs */
	bool has_utilization;
	double utilization; /* share of the last second or so in which it worked for any program */
};

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
	/* Any thread. Kernels that the calling thread asks next are to think of this device. NULL: they need
	 * not. */
	void (*enter)(const struct backend_device *dev);

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

/* What plans for an open device go by. */
static inline void backend_planner(const struct backend *backend, const struct backend_device *dev,
                                   struct planner *ret)
{
	*ret = (struct planner){.kernels = backend->kernels, .enter = backend->enter, .dev = dev};
	backend->describe(dev, &ret->info);
}

#ifdef __cplusplus
}
#endif

#endif
