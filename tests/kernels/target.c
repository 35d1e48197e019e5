/* target.c: problems on a device, through the backend vtable as the daemon uses it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define WAIT_S 60

static time_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

bool target_wait(struct target *t, unsigned n)
{
	const struct timespec nap = {.tv_nsec = 20000};
	time_t until = now_s() + WAIT_S;

	while (n > 0) {
		if (t->backend->poll(t->dev)) {
			n--;
			continue;
		}
		if (now_s() > until)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

int target_compute(struct target *t, struct run *run)
{
	int rc = t->backend->plan(t->dev, run);

	if (rc < 0)
		return rc;
	t->backend->start(t->dev, run);
	if (!target_wait(t, 1)) {
		snprintf(run->error, WHY_BYTES, "the run did not come back within %d s", WAIT_S);
		return KOPS_E_TIMEOUT;
	}
	return run->status;
}

static struct view all_of(const struct memory *m)
{
	return (struct view){
	    .space = m, .dtype = KOPS_F32, .rank = 1, .shape = {m->bytes / sizeof(float)}, .strides = {1}};
}

/* Copies a whole memory with a copy op. */
static int copy_memory(struct target *t, const struct memory *to, const struct memory *from,
                       char why[WHY_BYTES])
{
	struct run_op op = {.args = {.op = op_by_name("copy"), .views = {all_of(from), all_of(to)}},
	                    .pinned = ""};
	struct run run = {.ops = &op, .n_ops = 1};
	int rc = op.args.op->check(&op.args, why);

	if (rc < 0)
		return rc;
	rc = target_compute(t, &run);
	if (rc < 0)
		snprintf(why, WHY_BYTES, "moving a resident buffer: %.200s", run.error);
	return rc;
}

static int load_shared(struct target *t, struct space *s)
{
	s->memory.host = s->host;
	s->memory.pin = MEMORY_PAGEABLE;
	if (s->pinnable && t->backend->pin && t->backend->pin(s->host, s->bytes, false) == 0)
		s->memory.pin = MEMORY_PINNED;
	return 0;
}

int target_load(struct target *t, struct space *s, char why[WHY_BYTES])
{
	struct memory staging = {.host = s->host, .bytes = s->bytes};

	memcpy(s->host, s->before, s->bytes);
	s->memory = (struct memory){.bytes = s->bytes};
	if (!s->resident)
		return load_shared(t, s);
	s->memory.owner = t->dev;
	int rc = t->backend->alloc(t->dev, s->bytes, &s->memory.device);
	if (rc < 0) {
		snprintf(why, WHY_BYTES, "alloc of %llu bytes failed", (unsigned long long)s->bytes);
		return rc;
	}
	rc = copy_memory(t, &s->memory, &staging, why);
	memset(s->host, 0, s->bytes); /* what is found there later came from the device */
	return rc;
}

int target_unload(struct target *t, struct space *s, char why[WHY_BYTES])
{
	struct memory staging = {.host = s->host, .bytes = s->bytes};

	return s->resident ? copy_memory(t, &staging, &s->memory, why) : 0;
}

void target_drop(struct target *t, struct space *s)
{
	if (s->memory.device)
		t->backend->free(t->dev, s->memory.device);
	if (s->memory.pin == MEMORY_PINNED)
		t->backend->unpin(s->host);
	s->memory = (struct memory){.bytes = s->bytes};
}

int target_run(struct target *t, struct run *run, struct space *const spaces[], unsigned n_spaces)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < n_spaces; i++)
		rc = target_load(t, spaces[i], run->error);
	if (rc == 0)
		rc = target_compute(t, run);
	for (unsigned i = 0; rc == 0 && i < n_spaces; i++)
		rc = target_unload(t, spaces[i], run->error);
	for (unsigned i = 0; i < n_spaces; i++)
		target_drop(t, spaces[i]);
	return rc;
}
