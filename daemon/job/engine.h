/*
 * engine.h: what jobs and buffers share: the devices and what they hold, the scheduler, memory, the users'
 * accounts. One in a daemon, part of struct server, which fills it. Loop thread only.
 *
 * Whoever is above sets what is to be called back: the engine knows neither sessions nor the server.
 */
#ifndef KOPS_ENGINE_H
#define KOPS_ENGINE_H

#include <uv.h>

#include "config/config.h"
#include "device/device.h"
#include "device/learned.h"
#include "device/marks.h"
#include "host_memory.h"
#include "job/pool.h"
#include "share/account.h"
#include "share/scheduler.h"
#include "share/workers.h"

struct buffer;
struct job;

/* Memory of prepared jobs that was freed, and is given back to the system by a worker thread: job/prepared.c.
 */
struct freed {
	uint64_t bytes; /* since the last time */
	struct task task;
	struct account *account; /* whose time that takes; NULL: it is not out */
};

struct engine_device {
	struct device *device;
	struct learned *learned; /* what jobs showed; NULL: not to be looked at */
	uint64_t bytes_out;      /* admitted: staging and workspace of runs out */
	struct list out;         /* jobs that the device has, first started first */
	struct list paused;      /* jobs that it holds memory for */
	uint64_t freed_ns; /* when a run was last known to be through, or paused; not where runs overlap */
	bool seen_hung;    /* by the last look for hung devices */
};

struct engine {
	uv_loop_t *loop, *timers; /* timers: see timers.h */
	const struct config *config;
	struct accounts accounts;
	struct sched sched;
	struct workers *workers;
	struct pool *pool;
	struct marks *marks;           /* NULL: none are kept */
	const struct backend *pinning; /* which can register host memory for DMA; NULL: none */
	struct engine_device devices[SCHED_DEVICES_MAX];
	unsigned n_devices;
	unsigned n_buffers, n_buffers_max; /* of all users */
	unsigned n_dropping;               /* dropped ones of which prepared jobs have not let go yet */
	/* See buffer_memory_is_ample(): what may be mapped for it to be so, by the last look at memory. */
	uint64_t ample_bytes, looked_at_memory_ms;
	bool memory_is_ample;
	struct list expiring;     /* queued jobs with a deadline */
	uint64_t expires_ns;      /* when they are looked at next; 0: not */
	struct errand expiry;     /* which does so, with these: */
	struct job *expires_next; /* the one to look at */
	uint64_t earliest_ns;     /* deadline of those that were looked at, or have come meanwhile */
	struct job *suspect;      /* waits until nothing else is out, or is out alone; NULL: none */
	bool others_first;        /* no suspect starts for now */
	bool suspect_waits;       /* for that */
	uint64_t next_lane;
	uint64_t prepared_bytes; /* of all users */
	uint64_t prepared_max;   /* by the memory that there is */
	struct host_memory_growth prepared_growth;
	struct freed freed;
	bool can_swap;  /* the host's memory may be on a disk */
	bool runs_now;  /* within device_run_now() */
	unsigned plans; /* goes up when plans made so far may no longer be what they would be */
	uv_timer_t deadline_timer, lasting_timer;

	/* A job, a buffer or a session has ended: moves a drain on. */
	void (*progress)(struct engine *engine);
	/* A run went to a device, a job or a canary: looks out for hung GPUs while any is out. */
	void (*watch_runs)(struct engine *engine);
	/* A trial has ended: it will be kept over a restart. */
	void (*learned_something)(struct engine *engine);
	/* A device answered KOPS_E_FAULT: the process has to be replaced. Does not return. */
	void (*device_failed)(struct engine *engine, const struct device *device, const char *why)
	    __attribute__((noreturn));
	/* Memory is no longer ample: jobs that are out claim the pages that they reach. */
	void (*memory_is_short)(struct engine *engine);
	/* A PENDING buffer that jobs wait for has become READY or FAILED. */
	void (*buffer_settled)(struct buffer *buffer);
};

/* The device of this name; empty: the first. NULL: none. ret_index may be NULL. */
struct device *engine_device(const struct engine *engine, const char *name, unsigned *ret_index);

/* A device that is not healthy; NULL: all are. See device_is_healthy(). */
const struct device *engine_sick_device(const struct engine *engine);

/* Whether any device has a job. */
bool engine_has_jobs_out(const struct engine *engine);

#endif
