/*
 * engine.h: state that jobs and buffers share: devices, the scheduler, memory and the users' accounts. There is
 * one in a daemon, part of struct server, which fills it. Loop thread only.
 *
 * Higher layers set the callbacks: the engine knows neither sessions nor the server.
 */
#ifndef KOPS_ENGINE_H
#define KOPS_ENGINE_H

#include <uv.h>

#include "config/config.h"
#include "device/device.h"
#include "device/learned.h"
#include "device/marks.h"
#include "host_memory.h"
#include "job/memory/pool.h"
#include "share/account.h"
#include "share/recent.h"
#include "share/scheduler.h"
#include "share/workers.h"

struct buffer;
struct job;

/* Freed memory of prepared jobs, which a worker thread returns to the system: job/prepared.c. */
struct freed {
	uint64_t bytes; /* since the last task */
	struct task task;
	struct account *account; /* charged for the task's time; NULL: the task is not queued */
};

/* Published buffers of all users: job/memory/published.h. */
struct published_all {
	struct list list;  /* the latest first */
	struct list walks; /* through it, in pieces */
	uint64_t last;     /* number of the latest */
};

struct engine_device {
	struct device *device;
	struct learned *learned;   /* what jobs showed; NULL: not used */
	uint64_t bytes_out;        /* staging and workspace of runs in flight */
	struct list out;           /* jobs that the device has, in the order of their starts */
	struct list paused;        /* paused jobs whose device memory is kept */
	uint64_t freed_ns;         /* when a run last ended or paused; unused if runs overlap */
	uint64_t starts;           /* of jobs so far, after pauses too */
	struct recent_users users; /* that had jobs there lately */
	bool seen_hung;            /* whether the last check for hung devices found this one hung */
};

struct engine {
	uv_loop_t *loop, *timers; /* timers: see timers.h */
	const struct config *config;
	struct accounts accounts;
	struct sched sched;
	struct workers *workers;
	struct pool *pool;
	struct marks *marks;          /* NULL: jobs are not marked */
	const struct driver *pinning; /* can register host memory for DMA; NULL: none */
	struct engine_device devices[SCHED_DEVICES_MAX];
	unsigned n_devices;
	unsigned n_buffers, n_buffers_max; /* of all users */
	struct published_all published;
	unsigned n_dropping; /* dropped buffers that prepared jobs still hold */
	/* For engine_memory_is_ample(): memory is ample while less than this is mapped, as of the last look at
	 * memory. */
	uint64_t ample_bytes, looked_at_memory_ms;
	bool memory_is_ample;
	struct list expiring;     /* queued jobs with a deadline */
	uint64_t expires_ns;      /* time of the next check; 0: none */
	struct errand expiry;     /* the check; the next two members are its state */
	struct job *expires_next; /* the next job to check */
	uint64_t earliest_ns;     /* earliest deadline of jobs that were checked, or queued meanwhile */
	struct job *suspect;      /* waits until nothing else is in flight, or runs alone; NULL: none */
	bool others_first;        /* no suspect may start now */
	bool suspect_waits;       /* a suspect waits because of others_first */
	uint64_t next_lane;
	uint64_t prepared_bytes; /* of all users */
	uint64_t prepared_max;   /* depends on the host's memory */
	struct host_memory_growth prepared_growth;
	struct freed freed;
	bool can_swap;  /* the host's memory may be swapped to a disk */
	bool runs_now;  /* within device_run_now() */
	unsigned plans; /* increases when earlier plans may no longer be the best */
	uv_timer_t deadline_timer, lasting_timer;

	/* Called when a job, a buffer or a session has ended: continues a drain. */
	void (*progress)(struct engine *engine);
	/* Called when a run, of a job or a canary, goes to a device: checks for hung GPUs while any is in
	 * flight. */
	void (*watch_runs)(struct engine *engine);
	/* Called when a trial has ended: the result will be saved. */
	void (*learned_something)(struct engine *engine);
	/* Called when a device answered KOPS_E_FAULT: the process has to be replaced. Does not return. */
	void (*device_failed)(struct engine *engine, const struct device *device, const char *why)
	    __attribute__((noreturn));
	/* Called when memory is no longer ample: running jobs claim the pages that they reach. */
	void (*memory_is_short)(struct engine *engine);
	/* Called when a PENDING buffer that jobs wait for has become READY or FAILED. */
	void (*buffer_settled)(struct buffer *buffer);
};

/* Whether a client that names a device so means this one: "gpu0", all of a kind "gpu*", any "". */
bool device_is_meant(const struct device *device, const char *name);

/* The first device that is meant. NULL: there is none. ret_index may be NULL. */
struct device *engine_device(const struct engine *engine, const char *name, unsigned *ret_index);

/* A device that is not healthy; NULL: all are. See device_is_healthy(). */
const struct device *engine_sick_device(const struct engine *engine);

/* Returns true if any device has a job. */
bool engine_has_jobs_out(const struct engine *engine);

/*
 * Returns true if memory is so plentiful, for all that is mapped, that no job needs to claim the pages that it
 * reaches. Calls engine->memory_is_short() when it has just become scarce.
 */
bool engine_memory_is_ample(struct engine *engine);

/* Counts memory that is about to be taken, until the next look at memory finds it gone. */
void engine_take_memory(struct engine *engine, uint64_t bytes);

#endif
