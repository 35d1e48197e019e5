/* verb/stats.c: Stats: reports what the daemon holds and has done. */
#include "base/clock.h"
#include "session/reply.h"
#include "session/verbs.h"

/* For a device without such sensors, reports kopsd's own use. */
static void fill_memory(const struct engine_device *d, const struct device_sensors *sensors,
                        Kops__V1__DeviceStats *ret)
{
	uint64_t all = d->device->info->memory_bytes, own = d->device->stats.resident_bytes + d->bytes_out;

	ret->memory_used_bytes = sensors->memory_used_bytes;
	ret->memory_free_bytes = sensors->memory_free_bytes;
	if (sensors->memory_used_bytes || sensors->memory_free_bytes)
		return;
	ret->memory_used_bytes = own;
	ret->memory_free_bytes = all > own ? all - own : 0;
}

static void fill_device(const struct engine *e, unsigned i, const struct device_sensors *sensors,
                        Kops__V1__DeviceStats *ret)
{
	struct device *d = e->devices[i].device;
	const struct device_stats *s = &d->stats;

	*ret = (Kops__V1__DeviceStats)KOPS__V1__DEVICE_STATS__INIT;
	ret->name = (char *)d->name;
	ret->jobs_done = s->jobs_done;
	ret->jobs_failed = s->jobs_failed;
	ret->queued = e->sched.devices[i].waiting;
	ret->running = device_jobs_out(d);
	ret->resident_bytes = s->resident_bytes;
	ret->busy_us = device_busy_us(d);
	ret->canary_age_us = device_canary_age_ns(d) / 1000;
	ret->temperature_c = sensors->temperature_c;
	ret->power_w = sensors->power_w;
	ret->power_limit_w = sensors->power_limit_w;
	ret->utilization = sensors->has_utilization ? sensors->utilization : device_load(d);
	fill_memory(&e->devices[i], sensors, ret);
}

static void answer_stats(struct session *session, uint64_t id)
{
	const struct engine *e = session->engine;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Statistics stats = KOPS__V1__STATISTICS__INIT;
	Kops__V1__DeviceStats devices[SCHED_DEVICES_MAX], *pointers[SCHED_DEVICES_MAX];

	for (unsigned i = 0; i < e->n_devices; i++) {
		fill_device(e, i, &session->all->sensors.of[i].latest, &devices[i]);
		pointers[i] = &devices[i];
	}
	stats.uptime_us = (clock_ns() - session->all->started_ns) / 1000;
	stats.sessions = e->accounts.sessions;
	stats.buffers = e->n_buffers;
	stats.mapped_bytes = e->accounts.bytes[ACCOUNT_MAPPED];
	stats.pinned_bytes = e->accounts.bytes[ACCOUNT_PINNED];
	stats.pool_bytes = pool_bytes(e->pool);
	stats.n_devices = e->n_devices;
	stats.devices = pointers;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_STATISTICS;
	reply.statistics = &stats;
	reply_send(session, &reply, -1);
}

static bool is_out(const struct askers *stats)
{
	return sensors_are_out(&container_of(stats, struct sessions, stats)->sensors);
}

static void answer_waiting(void *sessions)
{
	questions_answer(&((struct sessions *)sessions)->stats);
}

void stats_init(struct sessions *all)
{
	all->stats = (struct askers){.engine = all->engine, .is_out = is_out, .answer = answer_stats};
	all->sensors.done = answer_waiting;
	all->sensors.user = all;
}

int verb_stats(struct request *r)
{
	struct session *s = r->session;
	struct sessions *all = s->all;

	sensors_refresh(&all->sensors, s->account);
	if (sensors_are_out(&all->sensors))
		return questions_add(&s->stats, r->id);
	answer_stats(s, r->id);
	return 0;
}
