/*
 * driver.h: what one kind of device can do for kopsd: its facts and kernels, its memory, and how runs that are
 * planned (plan/planner.h) are started and come back. cpu/cpu.c is built in; cuda/ is the module
 * kops-cuda.so, which exports DRIVER_ENTRY and nothing else.
 *
 * Threads: every function runs on the device's own thread (device.c), except those marked "any
 * thread". A driver never logs; it returns a code and a sentence.
 */
#ifndef KOPS_DRIVER_H
#define KOPS_DRIVER_H

#include "plan/planner.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DRIVER_ABI   25
#define DRIVER_ENTRY "kops_driver"

/* 0: it does not say. */
struct device_sensors {
	double temperature_c, power_w, power_limit_w;
	uint64_t memory_used_bytes, memory_free_bytes; /* by all programs */
	bool has_utilization;
	double utilization; /* share of the last second or so in which it worked for any program */
};

/* What an open device may take. 0: all that the process may. */
struct driver_limits {
	unsigned threads;      /* CPU threads for one op */
	uint64_t memory_bytes; /* a GPU's, for runs and RESIDENT buffers */
};

struct driver {
	uint32_t abi;     /* DRIVER_ABI */
	const char *kind; /* "cpu", "gpu" */

	/* Any thread. How many devices there are; on failure 0 and a sentence (no NVIDIA driver, …). */
	unsigned (*count)(char why[WHY_BYTES]);

	int (*open)(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
	            char why[WHY_BYTES]);
	/*
	 * Opens a second state of an open device, for another thread: it computes short runs there while `dev`
	 * is busy with a long one (info.beside_us). Close it before `dev`. NULL: the device has none.
	 */
	int (*open_beside)(const struct device_state *dev, struct device_state **ret_beside,
	                   char why[WHY_BYTES]);
	void (*close)(struct device_state *dev); /* NULL allowed; no run may be in flight */
	void (*describe)(const struct device_state *dev, struct device_info *ret); /* any thread */

	/* Any thread, and may take milliseconds: fills in what the device says, of zeros. NULL: nothing. */
	void (*sense)(const struct device_state *dev, struct device_sensors *ret);

	/* Any thread. Kernels for an op; an empty list for an op unknown here. */
	const struct kernel_list *(*kernels)(const struct op *op);
	/* Any thread. Kernels that the calling thread asks next are to think of this device. NULL: they need
	 * not. */
	void (*enter)(const struct device_state *dev);

	/*
	 * Begins a run or goes on with it. May compute at once (CPU), until it is asked to pause, or enqueue a
	 * slice of about PART_US (GPU), or hold it back until the next poll(), to start it with others that are
	 * alike. The run comes back through poll(), failed and paused ones too.
	 */
	void (*start)(struct device_state *dev, struct run *run);
	/* The next finished run, or NULL when none is finished now. Never blocks. */
	struct run *(*poll)(struct device_state *dev);
	/* Forgets a paused run that will not go on. NULL where there is nothing to forget. */
	void (*abandon)(struct device_state *dev, struct run *run);
	/*
	 * Any thread. Gets over with the first launches that the ops of a run name (run_op.first_launch), on a
	 * thread of the driver's. The run is not borrowed. NULL: there are none.
	 */
	void (*get_ready)(struct device_state *dev, const struct run *run);
	/*
	 * Asks that wake(arg), the same in each call, be called from any thread when a run in flight now
	 * finishes. It may be called once for each run, however often notify() is, and after poll() has
	 * returned the run. NULL where start() computes at once.
	 */
	void (*notify)(struct device_state *dev, void (*wake)(void *arg), void *arg);

	/* RESIDENT memory, zeroed. Both NULL where the device computes in host memory, which its owner then
	 * makes. */
	int (*alloc)(struct device_state *dev, uint64_t bytes, void **ret_address);
	void (*free)(struct device_state *dev, void *address);

	/*
	 * Any thread. At how many bytes per us `dev` copies from the memory of `from`, another open device of
	 * this driver; 0: it does not. NULL: none does.
	 */
	double (*peer_rate)(const struct device_state *dev, const struct device_state *from);

	/* Any thread. Registers host memory for DMA by every device of this kind. unpin: with what pin() was
	 * given. Both NULL on the CPU. */
	int (*pin)(void *host, uint64_t bytes, bool read_only);
	void (*unpin)(void *host, uint64_t bytes);
};

/* What plans for an open device go by. */
static inline void driver_planner(const struct driver *driver, const struct device_state *dev,
                                  struct planner *ret)
{
	*ret = (struct planner){.kernels = driver->kernels, .enter = driver->enter, .dev = dev};
	driver->describe(dev, &ret->info);
}

#ifdef __cplusplus
}
#endif

#endif
