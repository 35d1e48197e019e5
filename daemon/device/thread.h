/*
 * thread.h: the thread of a device: it opens the backend's device, starts the work that is pushed, and hands
 * it back. device.c is its owner, on the loop thread, which calls these functions.
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
	/* the owner's, set before the start */
	const struct backend *backend;
	unsigned index, threads;
	int wake_fd;        /* an eventfd, raised when work is done, and when the loop shall look out */
	bool may_call_loop; /* to look out */

	/* set by the start */
	struct backend_device *dev;
	struct planner planner;
	char disabled_kernels[WHY_BYTES];

	uint64_t pause_at_ns; /* atomic: the runs'; the owner's business */

	/* thread.c's own */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake, opened;
	enum device_thread_state state; /* under lock */
	bool notified;                  /* under lock: the backend says a run has finished */
	int open_status;                /* under lock until READY */
	char open_why[WHY_BYTES];
	uint64_t call_until_ns; /* atomic: the loop thread shall look out until then; 0: it need not */

	/* Each way has a cache line of its own, and so has what the thread alone writes: else who looks again
	 * and again on one side would slow the other down. */
	_Alignas(64) struct work_stack inbox;
	bool sleeping; /* atomic, changed under lock: whoever fills the inbox has to wake it */
	_Alignas(64) struct work_stack done;
	bool looking;                          /* atomic: the loop thread looks at done by itself */
	int loop_cpu;                          /* atomic: where it took something the last time */
	_Alignas(64) struct forecast forecast; /* the thread's */
};

/* Before anything else; device_thread_destroy() undoes it. */
void device_thread_init(struct device_thread *t);
void device_thread_destroy(struct device_thread *t);

/* Blocks until the device is open and its kernels are tested. Otherwise the thread is gone. */
int device_thread_start(struct device_thread *t, char why[WHY_BYTES]);
/* Once all work is back. Blocks until the device is closed. */
void device_thread_stop(struct device_thread *t);

/* looking: the caller will ask soon, and again, what is done, and needs no call for what comes next. */
void device_thread_push(struct device_thread *t, struct device_work *work, bool looking);
/* All that is done. looking: see above; false: it needs a call from now on. */
struct device_work *device_thread_take_done(struct device_thread *t, bool looking);

static inline bool device_thread_has_done(const struct device_thread *t)
{
	return !work_stack_is_empty(&t->done);
}

/* Until when the loop shall look out, since the end of a run is near; 0: it need not. Tells it once. */
static inline uint64_t device_thread_take_call(struct device_thread *t)
{
	return __atomic_exchange_n(&t->call_until_ns, 0, __ATOMIC_ACQ_REL);
}

#endif
