#include "session/reply.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "device/shape_class.h"
#include "kops_types.h"
#include "log.h"
#include "server.h"
#include "status.h"

int reply_send(struct session *session, const Kops__V1__Reply *reply, int fd)
{
	struct server *server = session->server;
	size_t bytes;

	if (message_pack(&reply->base, server->out, &bytes) < 0) {
		log_error("session %llu: a reply did not fit in a datagram",
		          (unsigned long long)session->serial);
		reply_error(session, reply->id, KOPS_E_RANGE, "the answer does not fit in one datagram", 0);
		return 0;
	}
	return session_send(session, server->out, bytes, fd);
}

void reply_ok(struct session *session, uint64_t id)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;

	reply.id = id;
	reply_send(session, &reply, -1);
}

void reply_error(struct session *session, uint64_t id, int status, const char *message, uint64_t retry_after_us)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	char text[WHY_BYTES];

	snprintf(text, sizeof text, "%s", message && *message ? message : status_text(status));
	message_make_text(text);
	reply.id = id;
	reply.status = status;
	reply.message = text;
	reply.retry_after_us = retry_after_us;
	reply_send(session, &reply, -1);
}

/* The receipt of very many ops says less of each. */
static void shorten(const Kops__V1__Reply *reply, Kops__V1__Receipt *receipt)
{
	bool too_long = kops__v1__reply__get_packed_size(reply) > MESSAGE_BYTES_MAX;

	for (size_t i = 0; too_long && i < receipt->n_ops; i++)
		receipt->ops[i]->passed_over = (char *)"";
	too_long = kops__v1__reply__get_packed_size(reply) > MESSAGE_BYTES_MAX;
	for (size_t i = 1; too_long && i < receipt->n_ops; i++)
		receipt->ops[i]->shape_class = (char *)"";
}

static const char *class_text(const struct op_args *args, char text[SHAPE_CLASS_TEXT_BYTES])
{
	struct shape_class class;

	shape_class_of(args, &class);
	return shape_class_format(&class, text);
}

void reply_receipt(const struct job *job)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	Kops__V1__OpReceipt parts[MESSAGE_OPS_MAX], *pointers[MESSAGE_OPS_MAX];
	char classes[MESSAGE_OPS_MAX][SHAPE_CLASS_TEXT_BYTES];
	const struct run *run = &job->run;

	for (unsigned i = 0; i < run->n_ops; i++) {
		const struct run_op *op = &run->ops[i];
		struct cost cost;
		op->args.op->cost(&op->args, &cost);
		parts[i] = (Kops__V1__OpReceipt)KOPS__V1__OP_RECEIPT__INIT;
		parts[i].op = (char *)op->args.op->name;
		parts[i].kernel = (char *)(op->kernel ? op->kernel->name : "");
		parts[i].why = (char *)op->why;
		parts[i].flops = cost.flops;
		parts[i].bytes = cost.bytes;
		parts[i].compute_us = op->compute_us;
		parts[i].passed_over = (char *)op->passed_over;
		parts[i].larger_errors = op->larger_errors;
		if (job->timed)
			parts[i].shape_class = (char *)class_text(&op->args, classes[i]);
		pointers[i] = &parts[i];
	}
	receipt.device = (char *)device_name(job->server->devices[job->sched.device]);
	receipt.queue_us = clock_us(job->arrived_ns, job->started_ns);
	receipt.upload_us = run->upload_us;
	receipt.compute_us = run->compute_us;
	receipt.download_us = run->download_us;
	receipt.total_us = clock_us(job->arrived_ns, clock_ns());
	receipt.n_ops = run->n_ops;
	receipt.ops = pointers;
	reply.id = job->id;
	reply.body_case = KOPS__V1__REPLY__BODY_RECEIPT;
	reply.receipt = &receipt;
	shorten(&reply, &receipt);
	reply_send(job->session, &reply, -1);
}

enum { ROWS_MAX = 256 };

static size_t describe_rows(const struct backend *backend, Kops__V1__KernelRow *rows, size_t used)
{
	for (unsigned i = 0; i < OP_COUNT; i++) {
		const struct kernel_list *list = backend->kernels(ops[i]);
		for (size_t k = 0; k < list->n && used < ROWS_MAX; k++) {
			rows[used] = (Kops__V1__KernelRow)KOPS__V1__KERNEL_ROW__INIT;
			rows[used].op = (char *)ops[i]->name;
			rows[used].name = (char *)list->rows[k].name;
			rows[used].device = (char *)backend->kind;
			rows[used].idea = (char *)list->rows[k].idea;
			rows[used].dtypes = (char *)list->rows[k].dtypes;
			rows[used].takes = (char *)list->rows[k].takes;
			rows[used].tensor_cores = list->rows[k].tensor_cores;
			used++;
		}
	}
	return used;
}

/* Rows once per kind of device. */
static size_t describe_all_rows(const struct server *server, Kops__V1__KernelRow *rows)
{
	size_t used = 0;

	for (unsigned i = 0; i < server->n_devices; i++) {
		const struct backend *backend = device_backend(server->devices[i]);
		bool seen = false;
		for (unsigned j = 0; j < i; j++)
			seen |= device_backend(server->devices[j]) == backend;
		if (!seen)
			used = describe_rows(backend, rows, used);
	}
	return used;
}

void reply_description(struct session *session, uint64_t id)
{
	const struct server *server = session->server;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Description description = KOPS__V1__DESCRIPTION__INIT;
	Kops__V1__Device devices[SCHED_DEVICES_MAX], *device_pointers[SCHED_DEVICES_MAX];
	Kops__V1__KernelRow rows[ROWS_MAX], *row_pointers[ROWS_MAX];

	for (unsigned i = 0; i < server->n_devices; i++) {
		const struct device *d = server->devices[i];
		devices[i] = (Kops__V1__Device)KOPS__V1__DEVICE__INIT;
		devices[i].name = (char *)device_name(d);
		devices[i].description = (char *)device_info(d)->description;
		devices[i].memory_bytes = device_info(d)->memory_bytes;
		devices[i].cache_bytes = device_info(d)->cache_bytes;
		devices[i].disabled_rows = (char *)device_disabled_rows(d);
		device_pointers[i] = &devices[i];
	}
	description.n_devices = server->n_devices;
	description.devices = device_pointers;
	description.n_kernels = describe_all_rows(server, rows);
	for (size_t i = 0; i < description.n_kernels; i++)
		row_pointers[i] = &rows[i];
	description.kernels = row_pointers;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_DESCRIPTION;
	reply.description = &description;
	reply_send(session, &reply, -1);
}

void reply_statistics(struct session *session, uint64_t id)
{
	const struct server *server = session->server;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Statistics stats = KOPS__V1__STATISTICS__INIT;
	Kops__V1__DeviceStats devices[SCHED_DEVICES_MAX], *pointers[SCHED_DEVICES_MAX];

	for (unsigned i = 0; i < server->n_devices; i++) {
		struct device *d = server->devices[i];
		const struct device_stats *s = device_stats(d);
		devices[i] = (Kops__V1__DeviceStats)KOPS__V1__DEVICE_STATS__INIT;
		devices[i].name = (char *)device_name(d);
		devices[i].jobs_done = s->jobs_done;
		devices[i].jobs_failed = s->jobs_failed;
		devices[i].queued = server->sched.waiting[i];
		devices[i].running = device_runs_out(d);
		devices[i].resident_bytes = s->resident_bytes;
		devices[i].busy_us = s->busy_us;
		devices[i].canary_age_us = device_canary_age_ns(d) / 1000;
		pointers[i] = &devices[i];
	}
	stats.uptime_us = (clock_ns() - server->started_ns) / 1000;
	stats.sessions = server->accounts.sessions;
	stats.buffers = server->n_buffers;
	stats.mapped_bytes = server->accounts.bytes[ACCOUNT_MAPPED];
	stats.pinned_bytes = server->accounts.bytes[ACCOUNT_PINNED];
	stats.pool_bytes = pool_bytes(server->pool);
	stats.n_devices = server->n_devices;
	stats.devices = pointers;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_STATISTICS;
	reply.statistics = &stats;
	reply_send(session, &reply, -1);
}
