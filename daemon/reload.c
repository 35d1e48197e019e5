#include "reload.h"

#include <stdio.h>
#include <string.h>

#include "common/threads.h"
#include "kops_types.h"

static void *read_settings(void *arg)
{
	struct reload *r = arg;
	enum config_action action;
	int rc = config_load(r->argc, r->argv, &r->fresh, &action, r->why);

	pthread_mutex_lock(&r->lock);
	r->rc = rc;
	r->is_done = true;
	if (!r->is_abandoned)
		uv_async_send(&r->async);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static int start_reading(struct reload *r)
{
	pthread_t thread;
	int error = threads_create(&thread, NULL, read_settings, r);

	if (error) {
		snprintf(r->why, sizeof(r->why), "cannot start a thread that reads it: %s", strerror(error));
		return KOPS_E_SYSTEM;
	}
	pthread_detach(thread);
	return 0;
}

static void on_settings_read(uv_async_t *async)
{
	struct reload *r = async->data;
	bool is_done;

	pthread_mutex_lock(&r->lock);
	is_done = r->is_done;
	r->is_done = false;
	pthread_mutex_unlock(&r->lock);
	if (!is_done)
		return;
	r->is_running = false;
	r->loaded(r, r->rc);
	if (r->is_wanted_again)
		reload_start(r);
}

void reload_init(struct reload *r, uv_loop_t *loop, int argc, char **argv,
                 void (*loaded)(struct reload *reload, int rc))
{
	r->argc = argc;
	r->argv = argv;
	r->loaded = loaded;
	pthread_mutex_init(&r->lock, NULL);
	uv_async_init(loop, &r->async, on_settings_read);
	uv_unref((uv_handle_t *)&r->async);
	r->async.data = r;
}

void reload_start(struct reload *r)
{
	int rc;

	r->is_wanted_again = r->is_running;
	if (r->is_running)
		return;
	rc = start_reading(r);
	r->is_running = rc == 0;
	if (rc < 0)
		r->loaded(r, rc);
}

void reload_stop(struct reload *r)
{
	pthread_mutex_lock(&r->lock);
	r->is_abandoned = true;
	pthread_mutex_unlock(&r->lock);
	uv_close((uv_handle_t *)&r->async, NULL);
}
