#include "session/sensing.h"

#include "clock.h"

#define FRESH_NS 1000000000u

static struct sensing *of_task(struct task *task)
{
	return (struct sensing *)((char *)task - offsetof(struct sensing, task));
}

static bool sense(struct task *task)
{
	struct sensing *s = of_task(task);

	s->fresh = (struct device_sensors){0};
	s->device->backend->sense(s->device->dev, &s->fresh);
	return true;
}

static void sensed(struct task *task)
{
	struct sensing *s = of_task(task);

	s->latest = s->fresh;
	s->is_out = false;
	account_unref(s->accounts, s->account);
	s->done(s->user);
}

void sensing_refresh(struct sensing all[SCHED_DEVICES_MAX], struct engine *e, struct account *account,
                     void (*done)(void *user), void *user)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < e->n_devices; i++) {
		struct sensing *s = &all[i];

		if (!e->devices[i].device->backend->sense || s->is_out ||
		    (s->asked_ns && now - s->asked_ns < FRESH_NS))
			continue;
		s->task = (struct task){.step = sense, .done = sensed};
		s->device = e->devices[i].device;
		s->accounts = &e->accounts;
		s->account = account;
		account_ref(account);
		s->done = done;
		s->user = user;
		s->asked_ns = now;
		s->is_out = true;
		workers_submit(e->accounts.closers, &account->closing_flow, &s->task);
	}
}

bool sensing_is_out(const struct sensing all[SCHED_DEVICES_MAX])
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < SCHED_DEVICES_MAX; i++)
		if (all[i].is_out && now - all[i].asked_ns < FRESH_NS)
			return true;
	return false;
}
