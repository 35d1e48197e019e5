/*
 * thread.h: the thread of a device. It opens the driver's device, starts the work that is pushed, and hands it
 * back. Its owner, device.c, calls these functions on the loop thread. A device that computes at once may have
 * a second thread, for short runs beside a long one.
 *
 * States: OPENING → READY → CLOSING.
 */
#ifndef KOPS_DEVICE_THREAD_H
#define KOPS_DEVICE_THREAD_H

#include <pthread.h>
#include <uv.h>

#include "device/forecast.h"
#include "device/work.h"

enum device_thread_state { DEVICE_THREAD_OPENING, DEVICE_THREAD_READY, DEVICE_THREAD_CLOSING };

struct device_thread {
	/* set by the owner before the start */
	const struct driver *driver;
	unsigned index;
	struct driver_limits limits;
	const struct device_thread *beside; /* has the device open, and this thread works beside it; or NULL */
	int wake_fd;        /* an eventfd, raised when work is done and when the loop should look out */
	bool may_call_loop; /* may ask the loop to look out */

	/* set by the start */
	struct device_state *dev;
	struct planner planner;
	char disabled_kernels[WHY_BYTES];

	uint64_t pause_at_ns; /* atomic: when the current run should pause; set by the owner */

	/* private to thread.c */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake, opened;
	enum device_thread_state state; /* under lock */
	bool notified;                  /* under lock: the driver reported the end of a run */
	int open_status;                /* under lock until READY */
	char open_why[WHY_BYTES];
	uint64_t call_until_ns; /* atomic: the loop thread should look out until then; 0: it need not */

	/* Each direction has its own cache line, and so have the members that only the thread writes. Otherwise
	 * polling on one side would slow the other down. */
	_Alignas(64) struct work_stack inbox;
	bool sleeping; /* atomic, changed under lock: the thread must be woken when the inbox is filled */
	_Alignas(64) struct work_stack done;
	bool looking;                          /* atomic: the loop thread polls `done` by itself */
	int loop_cpu;                          /* atomic: the CPU on which the loop last took work */
	_Alignas(64) struct forecast forecast; /* private to the thread */
};

/* Must be called first; device_thread_destroy() undoes it. */
void device_thread_init(struct device_thread *t);
void device_thread_destroy(struct device_thread *t);

/* Blocks until the device is open and its kernels are tested. If that fails, the thread has ended. */
int device_thread_start(struct device_thread *t, char why[WHY_BYTES]);
/* Blocks until the device is closed. All work must be back. */
void device_thread_stop(struct device_thread *t);

/* looking: the caller polls for finished work soon and repeatedly, and need not be woken for it. */
void device_thread_push(struct device_thread *t, struct device_work *work, bool looking);
/* Returns all finished work. looking: as above; false: wake the caller from now on. */
struct device_work *device_thread_take_done(struct device_thread *t, bool looking);

static inline bool device_thread_has_done(const struct device_thread *t)
{
	return !work_stack_is_empty(&t->done);
}

/* Returns until when the loop should look out for the end of a run, once; 0: it need not. */
static inline uint64_t device_thread_take_call(struct device_thread *t)
{
	return __atomic_exchange_n(&t->call_until_ns, 0, __ATOMIC_ACQ_REL);
}

#endif
