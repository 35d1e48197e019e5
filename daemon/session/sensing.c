#include "session/sensing.h"

#include "base/clock.h"
#include "base/timers.h"

#define FRESH_NS 1000000000u

static struct sensing *of_task(struct task *task)
{
	return container_of(task, struct sensing, task);
}

static bool sense(struct task *task)
{
	struct sensing *s = of_task(task);

	s->fresh = (struct device_sensors){0};
	s->device->driver->sense(s->device->dev, &s->fresh);
	return true;
}

static void sensed(struct task *task)
{
	struct sensing *s = of_task(task);

	s->latest = s->fresh;
	s->is_out = false;
	account_unref(&s->all->engine->accounts, s->account);
	s->all->done(s->all->user);
}

static void on_late(uv_timer_t *timer)
{
	struct sensors *all = timer->data;

	all->done(all->user);
}

void sensors_init(struct sensors *all)
{
	uv_timer_init(all->engine->timers, &all->late);
	all->late.data = all;
}

static void ask(struct sensors *all, unsigned i, struct account *account, uint64_t now)
{
	struct sensing *s = &all->of[i];

	s->task = (struct task){.step = sense, .done = sensed};
	s->device = all->engine->devices[i].device;
	s->account = account;
	account_ref(account);
	s->asked_ns = now;
	s->is_out = true;
	s->all = all;
	workers_submit(all->engine->accounts.closers, &account->closing_flow, &s->task);
	timers_start(&all->late, on_late, FRESH_NS / 1000000 + 1, 0);
}

void sensors_refresh(struct sensors *all, struct account *account)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < all->engine->n_devices; i++) {
		const struct sensing *s = &all->of[i];

		if (all->engine->devices[i].device->driver->sense && !s->is_out &&
		    (!s->asked_ns || now - s->asked_ns >= FRESH_NS))
			ask(all, i, account, now);
	}
}

bool sensors_are_out(const struct sensors *all)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < all->engine->n_devices; i++)
		if (all->of[i].is_out && now - all->of[i].asked_ns < FRESH_NS)
			return true;
	return false;
}
