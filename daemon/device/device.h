/*
 * device.h: a device and its thread. Work crosses threads only here.
 *
 * The loop thread hands over struct device_work. The device thread executes it and hands it back, and done()
 * runs on the loop thread. In between the device thread only borrows the work.
 *
 * A device is not opened if its driver does not open, or if its self-tests leave no working kernel.
 */
#ifndef KOPS_DEVICE_H
#define KOPS_DEVICE_H

#include <uv.h>

#include "base/spin.h"
#include "device/thread.h"
#include "device/work.h"
#include "usage/load.h"

struct canary;

/* Updated by the code that ends jobs and makes and frees buffers. */
struct device_stats {
	uint64_t jobs_done, jobs_failed; /* failed: all that did not succeed, cancelled ones too */
	uint64_t resident_bytes;
	double busy_us;   /* of jobs that came back; set by device.c */
	struct load load; /* likewise */
};

struct device {
	/* Set by device_open(), constant afterwards. */
	char name[16];
	const struct driver *driver;
	struct device_state *dev; /* also the owner (struct memory) of RESIDENT memory on this device */
	const struct planner *planner;
	const struct device_info *info; /* the planner's */
	const char *disabled_kernels;   /* "" or "gemm/cublas,softmax/online" */

	/* Current state, for others to read. */
	unsigned runs_out;   /* jobs and canary, without those beside */
	unsigned work_out;   /* all runs and tasks */
	double planned_us;   /* of the runs in flight, without those beside */
	unsigned beside_out; /* short runs that another thread computes beside a long one */
	bool canary_out;
	struct device_stats stats;

	const struct turns *turns; /* of the loop; NULL: the loop serves nobody else */

	/* Private to device.c. */
	struct device_thread thread, beside; /* beside: only if the driver opens one */
	struct device_work *back; /* returned by the thread, oldest first; done() has not been called */
	uv_poll_t woken; /* raised by the thread; a uv_async_t would spin if its sender was preempted */
	uv_idle_t look_out;
	struct spin spin;
	uint64_t look_until_ns;
	bool looks_anew; /* look for LOOK_OUT_NS from the next look on */
	bool may_look_out;
	unsigned open_handles;
	uint64_t oldest_ns;  /* when the device last returned a run, or when its first run went out */
	double told_busy_us; /* the largest value that device_busy_us() returned */
	struct canary *canary;
	struct device_work canary_work;
	bool canary_right;
	uint64_t canary_sent_ns, canary_right_ns;
	void (*on_canary)(void *arg);
	void *on_canary_arg;
};

/*
 * Opens device `index` of a driver, tests its kernels, starts its thread and its first canary. Blocks (a CUDA
 * context takes 0.2 to 1.6 s), so call it at the start only. name: "gpu0", "cpu".
 */
int device_open(uv_loop_t *loop, const char *name, const struct driver *driver, unsigned index,
                const struct driver_limits *limits, struct device **ret_device, char why[WHY_BYTES]);

/* Stops the thread and frees the device. No work may be in flight. NULL allowed. The loop must run once more.
 */
void device_close(struct device *device);

/* Hands over work, in order; work->beside is set if it is to be computed beside a run in flight. Loop
 * thread. */
void device_submit(struct device *device, struct device_work *work);

/* Returns true while the loop polls for the end of a run instead of sleeping. */
static inline bool device_looks_out(const struct device *device)
{
	return uv_is_active((const uv_handle_t *)&device->look_out);
}

/* While the loop polls: calls done() of finished work. Returns true if there was any. Loop thread. */
bool device_look(struct device *device);

/* Returns true if finished work waits for its done() until other users had turns. */
static inline bool device_waits_to_tell(const struct device *device)
{
	return device->back;
}

/*
 * Runs the work within this call, done() included, if the device computes at once, and is idle or the work is
 * to be computed beside a run. That saves two changes of thread, which take longer than a short run. Returns
 * false if it did not. Loop thread.
 */
bool device_run_now(struct device *device, struct device_work *work);

/*
 * Asks for a pause: the current run, of a device that computes at once, pauses before its next part from this
 * time on. Every run starts without such a time. Loop thread.
 */
void device_pause_at(struct device *device, uint64_t ns);

/* Returns true if the planned run may come back unfinished. Then no run of its lane may be handed over after it
 * yet. */
static inline bool device_may_pause(const struct device *device, const struct run *run)
{
	bool works_by_itself = device->driver->notify;

	return works_by_itself ? !run_is_one_slice(run) : run->n_ops > 1 || run->ops[0].cut.n_parts > 1;
}

/* Returns true if another run should be handed over: that saves time, and the runs in flight are not planned to
 * take long. */
static inline bool device_has_room(const struct device *device)
{
	const struct device_info *info = device->info;

	return device->planned_us < info->crowd_us || device->runs_out == 0 ||
	       (device->runs_out < info->depth && device->planned_us < info->depth_us);
}

/* Returns true if runs of at most info.beside_us may be handed over to a device that works by itself, however
 * long the runs in flight take: it computes them beside these. */
static inline bool device_has_room_for_short(const struct device *device)
{
	const struct device_info *info = device->info;

	return device->driver->notify && device->planned_us >= info->crowd_us &&
	       device->runs_out < 2 * info->depth;
}

/* Returns true if no run at all should be handed over. */
static inline bool device_is_full(const struct device *device)
{
	return !device_has_room(device) && !device_has_room_for_short(device) &&
	       (!device->driver->open_beside || device->beside_out >= device->info->depth);
}

/*
 * Returns true if the planned run may be computed beside those in flight: they take long, it is short, and
 * it needs no threads that they use. So it need not wait until a long one pauses.
 */
bool device_has_room_beside(const struct device *device, const struct run *run);

/* Bytes of its memory without those of RESIDENT buffers. resident.c admits new buffers up to that. */
static inline uint64_t device_room_bytes(const struct device *device)
{
	return device->info->memory_bytes - device->stats.resident_bytes;
}

/* Returns true for devices that work on their own, as a GPU does, and so might stop. */
static inline bool device_can_hang(const struct device *device)
{
	return device->driver->notify != NULL;
}

/* The number of jobs in flight, without the canary. */
unsigned device_jobs_out(const struct device *device);
/* How long the current job has run since the device last returned one; 0: there is none. */
double device_live_us(const struct device *device);
/* Busy time, including the current job's. It never decreases, because monitors take differences. */
double device_busy_us(struct device *device);
/* The share of about the last second in which the device had a job, including the current one. */
double device_load(const struct device *device);

/*
 * Health. A canary is a small gemm with a known answer that takes the path of every job. The device is healthy
 * if the last canary was right and none is overdue. A canary is not overdue while other runs are in flight for
 * less than hang_ns. The CPU cannot hang.
 */
void device_start_canary(struct device *device); /* does nothing if one is in flight */
/* Returns true if the device can hang, has runs out, and has returned none for hang_ns. */
bool device_is_hung(const struct device *device, uint64_t hang_ns);
bool device_is_healthy(const struct device *device, uint64_t hang_ns);
uint64_t device_canary_age_ns(const struct device *device);
/* The error of a canary that came back with KOPS_E_FAULT; NULL: none did. */
const char *device_fault(const struct device *device);
/* Sets fn(arg) to run after each canary. */
void device_on_canary(struct device *device, void (*fn)(void *arg), void *arg);

#endif
