/*
 * reload.h: reads the settings anew, on a thread of its own: disks are slow, and so are directory services that
 * tell the names of users and groups. The loop goes on meanwhile.
 */
#ifndef KOPS_RELOAD_H
#define KOPS_RELOAD_H

#include <pthread.h>
#include <uv.h>

#include "config/load.h"

struct reload {
	int argc;
	char **argv;
	/* On the loop thread: with rc 0 `fresh` has the settings, else `why` a sentence. */
	void (*loaded)(struct reload *reload, int rc);
	uv_async_t async;
	bool is_running, is_wanted_again; /* the loop thread's */
	pthread_mutex_t lock;
	bool is_done, is_abandoned; /* under lock */
	int rc;
	struct config fresh;
	char why[CONFIG_WHY_BYTES];
};

void reload_init(struct reload *reload, uv_loop_t *loop, int argc, char **argv,
                 void (*loaded)(struct reload *reload, int rc));
/* Where one is at it, another follows: files may have changed since it read them. */
void reload_start(struct reload *reload);
/* Waits for nothing: a thread that is at it does not touch the loop any more. The loop must run once more. */
void reload_stop(struct reload *reload);

#endif
