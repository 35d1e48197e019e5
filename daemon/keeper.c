#include "keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/timers.h"
#include "log.h"
#include "plan/plan.h"

#define DELAY_MS 2000 /* trials come in bursts */

static struct kept *kept_of(struct keeper *k, unsigned i)
{
	return &k->devices[i];
}

/* ---- Writing ---- */

static bool is_due(struct keeper *k, unsigned i)
{
	const struct learned *learned = k->engine->devices[i].learned;

	return learned && *kept_of(k, i)->path && learned_changes(learned) != kept_of(k, i)->written_changes;
}

/* Copies what is due to be written, on the loop thread. Returns true if anything is. */
static bool export_due(struct keeper *k)
{
	bool any = false;

	for (unsigned i = 0; i < k->engine->n_devices; i++) {
		struct kept *kept = kept_of(k, i);
		const struct learned *learned = k->engine->devices[i].learned;

		if (!is_due(k, i) || learned_export(learned, &kept->shapes, &kept->n_shapes) < 0)
			continue;
		kept->written_changes = learned_changes(learned);
		any |= kept->shapes != NULL;
	}
	return any;
}

/* Any thread. */
static void write_all(struct keeper *k)
{
	char why[WHY_BYTES];

	for (unsigned i = 0; i < k->engine->n_devices; i++) {
		struct kept *kept = kept_of(k, i);

		if (!kept->shapes)
			continue;
		if (learned_file_save(&kept->file, kept->shapes, kept->n_shapes, why) < 0 && !k->has_failed) {
			log_warning("%s; kopsd will measure them again after a restart", why);
			k->has_failed = true;
		}
		free(kept->shapes);
		kept->shapes = NULL;
	}
}

static bool write_step(struct task *task)
{
	write_all(container_of(task, struct keeper, task));
	return true;
}

static void on_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	if (k->is_writing)
		return; /* written() will start it again */
	k->is_writing = export_due(k);
	if (k->is_writing)
		workers_submit(k->engine->workers, &k->flow, &k->task);
}

static void written(struct task *task)
{
	struct keeper *k = container_of(task, struct keeper, task);

	k->is_writing = false;
	keeper_note(k);
}

void keeper_note(struct keeper *k)
{
	bool due = false;

	for (unsigned i = 0; i < k->engine->n_devices; i++)
		due |= is_due(k, i);
	if (due && !uv_is_active((uv_handle_t *)&k->timer))
		timers_start(&k->timer, on_timer, DELAY_MS, 0);
}

/* ---- Start and end ---- */

static const char *cache_directory(const struct config *config, char folder[PATH_MAX])
{
	const char *given = getenv("CACHE_DIRECTORY");

	if (*config->cache_directory)
		snprintf(folder, PATH_MAX, "%s", config->cache_directory);
	else /* systemd separates several folders by colons */
		snprintf(folder, PATH_MAX, "%.*s", given ? (int)strcspn(given, ":") : 0, given ? given : "");
	return folder;
}

static void free_table(struct keeper *k, unsigned i)
{
	learned_free(k->engine->devices[i].learned);
	k->engine->devices[i].learned = NULL;
}

/* Loads a device's table. If out of memory, the device uses estimates. */
static void load_table(struct keeper *k, unsigned i)
{
	struct engine_device *d = &k->engine->devices[i];
	struct kept *kept = kept_of(k, i);
	const struct learned_owner owner = {d->device->planner->kernels, plan_rivals, d->device->planner};

	d->learned = *kept->path ? learned_file_load(&kept->file, &owner) : learned_new(&owner);
	kept->written_changes = 0;
}

void keeper_reload(struct keeper *k)
{
	k->engine->plans++;
	for (unsigned i = 0; i < k->engine->n_devices; i++) {
		struct engine_device *d = &k->engine->devices[i];
		bool wanted = k->engine->config->autotune && d->device->info->has_trials;

		if (wanted && !d->learned)
			load_table(k, i);
		else if (!wanted && d->learned)
			free_table(k, i);
	}
}

void keeper_start(struct keeper *k, struct engine *engine)
{
	char folder[PATH_MAX];

	k->engine = engine;
	k->task.step = write_step;
	k->task.done = written;
	cache_directory(engine->config, folder);
	for (unsigned i = 0; i < engine->n_devices; i++) {
		const struct device *device = engine->devices[i].device;
		struct kept *kept = kept_of(k, i);

		if (*folder &&
		    snprintf(kept->path, PATH_MAX, "%s/learned-%s", folder, device->name) >= PATH_MAX - 4)
			kept->path[0] = '\0';
		kept->file = (struct learned_file){.path = kept->path,
		                                   .device = device->name,
		                                   .daemon = "kopsd " KOPS_VERSION,
		                                   .description = device->info->description,
		                                   .kernels = device->driver->kernels};
	}
	keeper_reload(k);
}

void keeper_stop(struct keeper *k)
{
	if (!k->engine)
		return;
	if (!k->is_writing && export_due(k))
		write_all(k);
	for (unsigned i = 0; i < k->engine->n_devices; i++)
		free_table(k, i);
}
