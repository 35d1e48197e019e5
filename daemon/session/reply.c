#include "session/reply.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/prepared.h"
#include "job/spread.h"
#include "kops_types.h"
#include "log.h"
#include "printable.h"
#include "status.h"

/* Sends like session_send(), or returns KOPS_E_RANGE if the reply does not fit in a datagram. */
static int send_if_it_fits(struct session *session, const Kops__V1__Reply *reply, int fd)
{
	uint8_t *out = session->all->out;
	size_t bytes;
	int rc = message_pack(&reply->base, out, &bytes);

	return rc < 0 ? rc : session_send(session, out, bytes, fd);
}

int reply_send(struct session *session, const Kops__V1__Reply *reply, int fd)
{
	int rc = send_if_it_fits(session, reply, fd);

	if (rc != KOPS_E_RANGE)
		return rc;
	log_error("session %llu: a reply exceeds the size limit of a datagram",
	          (unsigned long long)session->serial);
	reply_error(session, reply->id, KOPS_E_RANGE, "the reply exceeds the size limit of a datagram", 0);
	return 0;
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
	make_printable(text); /* it may quote text that a client got from another program */
	reply.id = id;
	reply.status = status;
	reply.message = text;
	reply.retry_after_us = retry_after_us;
	reply_send(session, &reply, -1);
}

void reply_put_shape(const struct op_shape *shape, Kops__V1__DType *ret_dtype, size_t *ret_n,
                     uint64_t **ret_extents)
{
	*ret_dtype = (Kops__V1__DType)shape->dtype;
	*ret_n = shape->rank;
	*ret_extents = (uint64_t *)shape->extents; /* it is only read */
}

static void fill_op(const struct run_op *op, bool learning, Kops__V1__OpReceipt *ret)
{
	struct cost cost;

	op->args.op->cost(&op->args, &cost);
	*ret = (Kops__V1__OpReceipt)KOPS__V1__OP_RECEIPT__INIT;
	ret->op = (char *)op->args.op->name;
	ret->kernel = (char *)(op->kernel ? op->kernel->name : "");
	ret->why = (char *)op->why;
	ret->flops = cost.flops;
	ret->bytes = cost.bytes;
	ret->compute_us = op->compute_us;
	ret->passed_over = (char *)op->passed_over;
	ret->larger_errors = op->larger_errors;
	ret->learning = learning;
	reply_put_shape(&op->shape, &ret->dtype, &ret->n_shape, &ret->shape);
}

/* A Run of it works even if only its message is kept: each run is then made from that. */
static bool run_works(const struct job *job)
{
	return job->prepared || (job->number && idmap_get(&job->session->prepared, job->number));
}

static void fill_times(const struct job *job, Kops__V1__Receipt *ret)
{
	const struct run *run = &job->run;

	ret->queue_us = clock_us(job->arrived_ns, job->started_ns);
	ret->upload_us = run->upload_us;
	ret->compute_us = run->compute_us;
	ret->download_us = run->download_us;
	ret->total_us = clock_us(job->arrived_ns, job->ended_ns);
	ret->prepared = run_works(job);
	ret->graph = run->as_graph;
	ret->pauses = job->pauses;
	ret->paused_us = job->paused_us;
}

/* If the receipt of very many ops is too long, it says less of each. */
static void send_receipt(const struct job *job, Kops__V1__Receipt *receipt)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;

	reply.id = job->id;
	reply.body_case = KOPS__V1__REPLY__BODY_RECEIPT;
	reply.receipt = receipt;
	if (send_if_it_fits(job->session, &reply, -1) != KOPS_E_RANGE)
		return;
	for (size_t i = 0; i < receipt->n_ops; i++)
		receipt->ops[i]->passed_over = (char *)"";
	reply_send(job->session, &reply, -1);
}

/* A receipt without what an earlier one told. */
static void reply_as_before(const struct job *job)
{
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	double us[MESSAGE_OPS_MAX];

	fill_times(job, &receipt);
	receipt.as_before = true;
	receipt.ops_us = us;
	for (unsigned i = 0; i < job->run.n_ops; i++) {
		us[i] = job->ops[i].compute_us;
		if (us[i] > 0)
			receipt.n_ops_us = job->run.n_ops;
	}
	send_receipt(job, &receipt);
}

void reply_receipt(const struct job *job)
{
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	Kops__V1__OpReceipt parts[MESSAGE_OPS_MAX], *pointers[MESSAGE_OPS_MAX];
	const struct run *run = &job->run;

	if (job->prepared && job->prepared->is_told) {
		reply_as_before(job);
		return;
	}
	fill_times(job, &receipt);
	for (unsigned i = 0; i < run->n_ops; i++) {
		fill_op(&run->ops[i], !job->settled, &parts[i]);
		if (job->is_spread)
			parts[i].why = job->spread->tiles[0].op.why;
		pointers[i] = &parts[i];
	}
	receipt.device = (char *)job_device(job)->device->name;
	receipt.n_ops = run->n_ops;
	receipt.ops = pointers;
	send_receipt(job, &receipt);
	if (job->prepared)
		job->prepared->is_told = job->settled;
}

static void wake_client(struct session *session)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Woken woken = KOPS__V1__WOKEN__INIT;

	reply.body_case = KOPS__V1__REPLY__BODY_WOKEN;
	reply.woken = &woken;
	reply_send(session, &reply, -1);
}

bool reply_by_ring(const struct job *job)
{
	const struct run *run = &job->run;
	struct ring_end end = {
	    .id = job->id,
	    .flags = RING_PREPARED | (run->as_graph ? RING_GRAPH : 0),
	    .pauses = job->pauses,
	    .paused_us = job->paused_us,
	    .queue_us = clock_us(job->arrived_ns, job->started_ns),
	    .upload_us = run->upload_us,
	    .compute_us = run->compute_us,
	    .download_us = run->download_us,
	    .total_us = clock_us(job->arrived_ns, job->ended_ns),
	};

	if (!job->prepared || !job->prepared->is_told || run->timed)
		return false;
	if (ring_put(job->session->ring, &end))
		wake_client(job->session);
	return true;
}
