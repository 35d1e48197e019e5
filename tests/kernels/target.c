/* target.c: runs problems on a device, through the table of its driver as the daemon does. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "cpu/cpu.h"

#define WAIT_S 60

/* ---- Devices ---- */

static const struct driver *open_module(const char *path)
{
	const struct driver *(*entry)(void);
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *symbol = module ? dlsym(module, DRIVER_ENTRY) : NULL;

	if (!symbol) {
		fprintf(stderr, "cannot use module %s: %s\n", path, dlerror());
		return NULL;
	}
	memcpy(&entry, &symbol, sizeof entry);
	const struct driver *driver = entry();
	if (driver->abi == DRIVER_ABI)
		return driver;
	fprintf(stderr, "module %s has ABI %u, not %u: build both from one tree\n", path, driver->abi,
	        DRIVER_ABI);
	return NULL;
}

const struct driver *target_driver(const char *module)
{
	return module ? open_module(module) : &driver_cpu;
}

/* Returns 1 if it cannot be opened. */
static unsigned check_one(struct target *t, unsigned index,
                          unsigned (*check)(struct target *t, const void *options), const void *options)
{
	char why[WHY_BYTES] = "";

	if (t->driver->open(index, &(struct driver_limits){0}, &t->dev, why) < 0) {
		printf("FAILED to open %s: %s\n", t->name, why);
		return 1;
	}
	driver_planner(t->driver, t->dev, &t->planner);
	unsigned failed = check(t, options);
	t->driver->close(t->dev);
	return failed;
}

int target_each(const struct driver *driver, const char *device,
                unsigned (*check)(struct target *t, const void *options), const void *options)
{
	char why[WHY_BYTES] = "";
	unsigned n = driver->count(why), failed = 0, checked = 0;

	for (unsigned i = 0; i < n; i++) {
		struct target t = {.driver = driver};
		snprintf(t.name, sizeof t.name, n > 1 || strcmp(driver->kind, "cpu") ? "%s%u" : "%s",
		         driver->kind, i);
		if (device && strcmp(device, t.name) != 0)
			continue;
		checked++;
		failed += check_one(&t, i, check, options);
	}
	if (checked)
		return (int)failed;
	printf("skipped: no device%s%s\n", *why ? ": " : "", why);
	return -1;
}

/* ---- Runs ---- */

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
		struct run *run = t->driver->poll(t->dev);

		if (run && run->status == 0 && !run_is_through(run)) { /* one of several slices */
			t->driver->start(t->dev, run);
			continue;
		}
		if (run) {
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
	int rc = plan_run(&t->planner, run);

	if (rc < 0)
		return rc;
	t->driver->start(t->dev, run);
	if (!target_wait(t, 1)) {
		snprintf(run->error, WHY_BYTES, "the run did not come back within %d s", WAIT_S);
		return KOPS_E_TIMEOUT;
	}
	run_forget_plan(run);
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
	int rc = op_check(&op.args, why);

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
	if (s->pinnable && t->driver->pin && t->driver->pin(s->host, s->bytes, false) == 0)
		s->memory.pin = MEMORY_PINNED;
	return 0;
}

/* The caller owns the memory of a device without its own. */
int target_alloc(struct target *t, uint64_t bytes, void **ret_address)
{
	if (t->driver->alloc)
		return t->driver->alloc(t->dev, bytes, ret_address);
	*ret_address = calloc(1, bytes);
	return *ret_address ? 0 : KOPS_E_NOMEM;
}

void target_free(struct target *t, void *address)
{
	if (t->driver->alloc)
		t->driver->free(t->dev, address);
	else
		free(address);
}

int target_load(struct target *t, struct space *s, char why[WHY_BYTES])
{
	struct memory staging = {.host = s->host, .bytes = s->bytes};

	memcpy(s->host, s->before, s->bytes);
	s->memory = (struct memory){.bytes = s->bytes};
	if (!s->resident)
		return load_shared(t, s);
	s->memory.owner = t->dev;
	int rc = target_alloc(t, s->bytes, &s->memory.device);
	if (rc < 0) {
		snprintf(why, WHY_BYTES, "alloc of %llu bytes failed", (unsigned long long)s->bytes);
		return rc;
	}
	rc = copy_memory(t, &s->memory, &staging, why);
	memset(s->host, 0, s->bytes); /* so that later content must come from the device */
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
		target_free(t, s->memory.device);
	if (s->memory.pin == MEMORY_PINNED)
		t->driver->unpin(s->host, s->bytes);
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
