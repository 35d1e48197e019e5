/*
 * server.h: kopsd as one object: devices, sessions, accounts, the listening socket, and the loop that
 * owns them all. Everything here runs on the loop thread.
 *
 *     STARTING → SERVING → DRAINING → STOPPED
 *
 * STOPPED: the loop runs once more only to free what is there.
 */
#ifndef KOPS_SERVER_H
#define KOPS_SERVER_H

#include <uv.h>

#include "config.h"
#include "device/autotune.h"
#include "device/device.h"
#include "device/tuning.h"
#include "job/account.h"
#include "job/marks.h"
#include "job/pool.h"
#include "job/scheduler.h"
#include "job/workers.h"
#include "log.h"
#include "message.h"
#include "turns.h"

struct session;
struct ping;
struct job;

enum server_state { SERVER_STARTING, SERVER_SERVING, SERVER_DRAINING, SERVER_STOPPED };

struct server {
	uv_loop_t loop;
	enum server_state state;
	struct config config;
	int argc;
	char **argv;
	struct accounts accounts;
	struct sched sched;
	struct turns turns;
	struct workers *workers;
	struct pool *pool;
	const struct backend *gpu; /* NULL: none */
	struct device *devices[SCHED_DEVICES_MAX];
	struct tuning *tuning[SCHED_DEVICES_MAX];     /* of each device; NULL: nothing was measured */
	struct autotune *autotune[SCHED_DEVICES_MAX]; /* what jobs showed since; NULL: not to be looked at */
	uint64_t device_bytes_out[SCHED_DEVICES_MAX]; /* admitted: staging and workspace of runs out */
	struct job *jobs_out[SCHED_DEVICES_MAX];      /* that devices have, first started first */
	struct job *jobs_paused[SCHED_DEVICES_MAX];
	unsigned n_devices;
	unsigned n_buffers, n_buffers_max; /* of all users */
	unsigned n_sessions_max;           /* by descriptors */
	unsigned pool_segments_max;        /* likewise, of the cache */
	uint64_t ample_bytes;              /* see buffer_memory_is_ample() */
	uint64_t looked_at_memory_ns;
	struct session *sessions;
	struct ping *pings;   /* waiting for a canary */
	struct job *expiring; /* queued jobs with a deadline */
	struct marks *marks;  /* NULL: none are kept */
	struct job *suspect;  /* waits until nothing else is out, or is out alone; NULL: none */
	uint64_t next_lane;
	uint64_t started_ns;
	struct log_limit refusals; /* lines about clients that were turned away */

	int listen_fd;
	bool owns_socket; /* bound here: to be unlinked */
	int lock_fd;      /* of the file beside it; -1: the socket is inherited */
	int reserve_fd;   /* given up to accept and shed when descriptors run out */
	uv_poll_t listener;
	uv_signal_t sigterm, sigint, sighup;
	uv_timer_t deadline_timer, watchdog_timer, hang_timer, lasting_timer, drain_timer, drain_check;
	bool seen_hung; /* by the last look at the devices */
	uint64_t watchdog_ms;
	int exit_code;

	/* One request is handled at a time. */
	struct message_arena arena;
	uint8_t in[MESSAGE_BYTES_MAX], out[MESSAGE_BYTES_MAX];
};

/* Opens devices and socket and installs signal handlers. 0, or a code with a sentence in why. */
int server_start(struct server *server, int argc, char **argv, const struct config *config,
                 char why[CONFIG_WHY_BYTES]);
/* Serves until drained. Returns the exit code. */
int server_run(struct server *server);
/* Frees everything that server_start() made. */
void server_close(struct server *server);

/* The device of this name; empty: the first. NULL: none. */
struct device *server_device(const struct server *server, const char *name, unsigned *ret_index);

/* A device that is not healthy; NULL: all are. See device_is_healthy(). */
const struct device *server_sick_device(const struct server *server);

/* A device answered KOPS_E_FAULT: the process has to be replaced. Does not return. */
void server_device_failed(struct server *server, const struct device *device, const char *why)
    __attribute__((noreturn));

/* A run went to a device, a job or a canary: looks out for hung GPUs while any is out. */
void server_watch_runs(struct server *server);

/* A job went to a device: notes those that are there for long. See marks.h. */
void server_watch_marks(struct server *server);

/* Called whenever a job or a session has ended: moves a drain on. */
void server_progress(struct server *server);

#endif
