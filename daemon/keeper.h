/*
 * keeper.h: keeps what devices learned from jobs (device/learned.h) over restarts, in one file for each device
 * in the cache directory, such as learned-gpu0. A file is read at the start, and written some seconds after a
 * trial's result and at the stop. A worker thread writes, so that neither the loop nor a device waits for a
 * disk.
 */
#ifndef KOPS_KEEPER_H
#define KOPS_KEEPER_H

#include <limits.h>
#include <uv.h>

#include "device/learned_file.h"
#include "job/engine.h"

struct kept {
	char path[PATH_MAX]; /* "": not kept */
	struct learned_file file;
	uint64_t written_changes;     /* learned_changes() when the file was written */
	struct learned_shape *shapes; /* to be written by the task */
	size_t n_shapes;
};

struct keeper {
	struct engine *engine;
	struct kept devices[SCHED_DEVICES_MAX];
	uv_timer_t timer;
	struct task task;
	struct task_flow flow;
	bool is_writing, has_failed; /* has_failed: a failure was logged */
};

/* Gives each device its table, if `autotune` is set. The engine's devices are open. */
void keeper_start(struct keeper *keeper, struct engine *engine);

/* Call it when the setting autotune may have changed. */
void keeper_reload(struct keeper *keeper);

/* Call it when a trial has ended. */
void keeper_note(struct keeper *keeper);

/* Writes what is not written yet, unless a worker thread is writing, and frees the tables. */
void keeper_stop(struct keeper *keeper);

#endif
