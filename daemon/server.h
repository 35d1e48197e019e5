/*
 * server.h: kopsd as one object: devices, sessions, the listening socket, and the loop that owns them all.
 * Everything here runs on the loop thread.
 *
 *     STARTING → SERVING → DRAINING → STOPPED
 *
 * STOPPED: the loop runs once more only to free what is there.
 */
#ifndef KOPS_SERVER_H
#define KOPS_SERVER_H

#include <uv.h>

#include "base/timers.h"
#include "config/config.h"
#include "job/engine.h"
#include "keeper.h"
#include "listen/listener.h"
#include "reload.h"
#include "session/session.h"

enum server_state { SERVER_STARTING, SERVER_SERVING, SERVER_DRAINING, SERVER_STOPPED };

struct server {
	uv_loop_t loop;
	struct timers timers;
	enum server_state state;
	struct config config;
	struct reload reload;
	struct engine engine;
	struct keeper keeper;
	struct sessions sessions;
	struct listener listener;
	uv_signal_t sigterm, sigint, sighup;
	uv_timer_t watchdog_timer, hang_timer, drain_timer, drain_check;
	uint64_t watchdog_ms;
	int exit_code;
};

/*
 * Opens devices and socket and installs signal handlers. *server: zeros, except its config; much of its memory
 * is never touched. 0, or a code with a sentence in why; KOPS_E_INVALID: only other settings can help.
 */
int server_start(struct server *server, int argc, char **argv, char why[CONFIG_WHY_BYTES]);
/* Serves until drained. Returns the exit code. */
int server_run(struct server *server);
/* Frees everything that server_start() made. */
void server_close(struct server *server);

#endif
