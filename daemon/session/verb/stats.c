/* verb/stats.c: Stats: what the daemon holds and has done. */
#include "clock.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_stats(struct request *r)
{
	struct session *session = r->session;
	const struct engine *e = session->engine;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Statistics stats = KOPS__V1__STATISTICS__INIT;
	Kops__V1__DeviceStats devices[SCHED_DEVICES_MAX], *pointers[SCHED_DEVICES_MAX];

	for (unsigned i = 0; i < e->n_devices; i++) {
		struct device *d = e->devices[i].device;
		const struct device_stats *s = device_stats(d);
		devices[i] = (Kops__V1__DeviceStats)KOPS__V1__DEVICE_STATS__INIT;
		devices[i].name = (char *)device_name(d);
		devices[i].jobs_done = s->jobs_done;
		devices[i].jobs_failed = s->jobs_failed;
		devices[i].queued = e->sched.waiting[i];
		devices[i].running = device_jobs_out(d);
		devices[i].resident_bytes = s->resident_bytes;
		devices[i].busy_us = device_busy_us(d);
		devices[i].canary_age_us = device_canary_age_ns(d) / 1000;
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
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_STATISTICS;
	reply.statistics = &stats;
	reply_send(session, &reply, -1);
	return 0;
}
