/*
 * device.h: one device and its thread. The only place where work crosses threads.
 *
 * The loop thread hands over struct device_work; the device thread executes it and hands it back; its
 * done() runs on the loop thread again. In between the device thread only borrows it.
 *
 * A device whose self-tests leave no working kernel, or whose backend does not open, is never opened.
 */
#ifndef KOPS_DEVICE_H
#define KOPS_DEVICE_H

#include <uv.h>

#include "base/spin.h"
#include "device/thread.h"
#include "device/work.h"
#include "usage/load.h"

struct canary;

/* Kept by those who end jobs, and make and free buffers. */
struct device_stats {
	uint64_t jobs_done, jobs_failed; /* failed: all that were not done, cancelled ones too */
	uint64_t resident_bytes;
	double busy_us;   /* of jobs that came back: device.c's */
	struct load load; /* likewise */
};

struct device {
	/* What it is, from device_open() on. */
	char name[16];
	const struct backend *backend;
	struct backend_device *dev; /* also struct memory's owner, of RESIDENT memory here */
	const struct planner *planner;
	const struct device_info *info; /* the planner's */
	const char *disabled_kernels;   /* "" or "gemm/cublas,softmax/online" */

	/* What it has. For others to read. */
	unsigned runs_out; /* jobs and canary */
	unsigned work_out; /* those, and tasks */
	double planned_us; /* of the runs out */
	bool canary_out;
	struct device_stats stats;

	const struct turns *turns; /* of the loop; NULL: it serves nobody else */

	/* device.c's own */
	struct device_thread thread;
	struct device_work *back; /* from the thread, oldest first; done() was not called yet */
	uv_poll_t woken; /* by the thread; not a uv_async_t, which spins where its sender was preempted */
	uv_idle_t look_out;
	struct spin spin;
	uint64_t look_until_ns;
	bool looks_anew; /* from the next look on, for LOOK_OUT_NS */
	bool may_look_out;
	unsigned open_handles;
	uint64_t oldest_ns;  /* when the device last got a run back, or its first run out */
	double told_busy_us; /* the most that device_busy_us() ever said */
	struct canary *canary;
	struct device_work canary_work;
	bool canary_right;
	uint64_t canary_sent_ns, canary_right_ns;
	void (*on_canary)(void *arg);
	void *on_canary_arg;
};

/*
 * Opens device `index` of a backend, tests its kernels, starts its thread and its first canary. Blocks (a CUDA
 * context takes 0.2 to 1.6 s): for start-up. name: "gpu0", "cpu".
 */
int device_open(uv_loop_t *loop, const char *name, const struct backend *backend, unsigned index,
                unsigned threads, struct device **ret_device, char why[WHY_BYTES]);

/* Stops the thread and frees the device. No work may be out. NULL allowed. The loop must run once more. */
void device_close(struct device *device);

/* Hands over work, in order. Loop thread. */
void device_submit(struct device *device, struct device_work *work);

/* Whether the loop looks for the end of a run, without sleeping. */
static inline bool device_looks_out(const struct device *device)
{
	return uv_is_active((const uv_handle_t *)&device->look_out);
}

/* While it does: calls done() of those that are through by now. True: there were some. Loop thread. */
bool device_look(struct device *device);

/* Whether others have turns before done() of the rest is called. */
static inline bool device_waits_to_tell(const struct device *device)
{
	return device->back;
}

/*
 * Instead, where the device computes at once and has nothing to do: the run is through when this returns, and
 * done() was called. Saves two changes of thread, which take longer than a short run; the loop waits for it.
 * False: not here or not now. Loop thread.
 */
bool device_run_now(struct device *device, struct device_work *work);

/*
 * The run that a device of the kind that computes at once is at pauses before its next part when this time has
 * come. Each run starts without. Loop thread.
 */
void device_pause_at(struct device *device, uint64_t ns);

/* Whether the run, which is planned, may come back before it is through. Then nothing of its lane may follow it
 * yet. */
static inline bool device_may_pause(const struct device *device, const struct run *run)
{
	bool works_by_itself = device->backend->notify;

	return works_by_itself ? !run_is_one_slice(run) : run->n_ops > 1 || run->ops[0].cut.n_parts > 1;
}

/* Whether to hand over another run: it is worth it, and what is out is not planned to take long. */
static inline bool device_has_room(const struct device *device)
{
	const struct device_info *info = device->info;

	return device->planned_us < info->crowd_us || device->runs_out == 0 ||
	       (device->runs_out < info->depth && device->planned_us < info->depth_us);
}

/* Bytes of its memory that RESIDENT buffers do not hold. These are admitted up to that, by buffer.c. */
static inline uint64_t device_room_bytes(const struct device *device)
{
	return device->info->memory_bytes - device->stats.resident_bytes;
}

/* It works by itself, as a GPU does, and so might stop. */
static inline bool device_can_hang(const struct device *device)
{
	return device->backend->notify != NULL;
}

/* Without the canary. */
unsigned device_jobs_out(const struct device *device);
/* What the job that it is at has taken since the device last got one back; 0: it is at none. */
double device_live_us(const struct device *device);
/* With that. Never less than it was: monitors take differences. */
double device_busy_us(struct device *device);
/* With that too: the share of the last second or so in which it had a job. */
double device_load(const struct device *device);

/*
 * Health. A canary is a small gemm with a known answer that goes the way of every job. The device is healthy
 * when the last one was right and none is overdue; one is not overdue while other runs are out and young
 * (hang_ns; the CPU cannot hang).
 */
void device_start_canary(struct device *device); /* nothing if one is out */
/* Runs are out on such a device and none has come back for hang_ns. */
bool device_is_hung(const struct device *device, uint64_t hang_ns);
bool device_is_healthy(const struct device *device, uint64_t hang_ns);
uint64_t device_canary_age_ns(const struct device *device);
/* The sentence of a canary that came back with KOPS_E_FAULT; NULL: none did. */
const char *device_fault(const struct device *device);
/* fn(arg) runs after each canary. */
void device_on_canary(struct device *device, void (*fn)(void *arg), void *arg);

#endif
