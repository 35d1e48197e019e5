/*
 * keeper.h: keeps what devices learned from jobs (device/learned.h) over restarts, in a file for each device in
 * the cache directory: learned-gpu0. It is read at the start, and written some seconds after a trial has shown
 * something, and at the stop. A worker thread writes: neither the loop nor a device waits for a disk.
 */
#ifndef KOPS_KEEPER_H
#define KOPS_KEEPER_H

#include <limits.h>
#include <uv.h>

#include "device/learned_file.h"
#include "job/engine.h"

struct kept {
	char path[PATH_MAX]; /* "": nowhere */
	struct learned_file file;
	uint64_t written_changes;     /* learned_changes() of what the file holds */
	struct learned_shape *shapes; /* to be written */
	size_t n_shapes;
};

struct keeper {
	struct engine *engine;
	struct kept devices[SCHED_DEVICES_MAX];
	uv_timer_t timer;
	struct task task;
	struct task_flow flow;
	bool is_writing, has_failed; /* has_failed: the log has said so */
};

/* Of an engine whose devices are open: gives each its table as `autotune` says. */
void keeper_start(struct keeper *keeper, struct engine *engine);

/* The setting autotune may have changed. */
void keeper_reload(struct keeper *keeper);

/* A trial has ended. */
void keeper_note(struct keeper *keeper);

/* Writes what is not written yet, unless a worker thread is at it, and frees the tables. */
void keeper_stop(struct keeper *keeper);

#endif
