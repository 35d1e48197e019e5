/*
 * reload.h: reads the settings again, on a thread of its own, because disks are slow, and so are directory
 * services that resolve users and groups. The loop continues meanwhile.
 */
#ifndef KOPS_RELOAD_H
#define KOPS_RELOAD_H

#include <pthread.h>
#include <uv.h>

#include "config/load.h"

struct reload {
	int argc;
	char **argv;
	/* Called on the loop thread. rc 0: `fresh` has the settings; else `why` has a sentence. */
	void (*loaded)(struct reload *reload, int rc);
	uv_async_t async;
	bool is_running, is_wanted_again; /* used by the loop thread only */
	pthread_mutex_t lock;
	bool is_done, is_abandoned; /* under lock */
	int rc;
	struct config fresh;
	char why[CONFIG_WHY_BYTES];
};

void reload_init(struct reload *reload, uv_loop_t *loop, int argc, char **argv,
                 void (*loaded)(struct reload *reload, int rc));
/* Starts a reload. If one is running, another follows, because files may have changed since it read them. */
void reload_start(struct reload *reload);
/* Stops without waiting: a running thread no longer touches the loop. The loop must run once more. */
void reload_stop(struct reload *reload);

#endif
