/* job.c: makes, submits and ends a job. Its ops are in ops.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libkops/base/base.h"
#include "libkops/job/buffer.h"
#include "libkops/job/job.h"
#include "libkops/job/ops.h"
#include "libkops/job/receipt.h"
#include "libkops/job/repeat.h"
#include "libkops/wire/link.h"
#include "libkops/wire/ring.h"
#include "libkops/wire/wire.h"

/* Fields of proto/kops.proto that are packed by hand. */
#define TAG_REQUEST_ID     MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT)
#define TAG_REQUEST_SUBMIT MESSAGE_TAG(6, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
#define TAG_SUBMIT_PREPARE MESSAGE_TAG(7, PROTOBUF_C_WIRE_TYPE_VARINT)
#define TAG_SUBMIT_ONLY    MESSAGE_TAG(8, PROTOBUF_C_WIRE_TYPE_VARINT)
#define TAG_REQUEST_RUN    MESSAGE_TAG(11, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
#define TAG_RUN_PREPARED   MESSAGE_TAG(1, PROTOBUF_C_WIRE_TYPE_VARINT)

#define LONG_US 100 /* a CPU sleeps only lightly for a shorter wait */
#define HOUR_US 3600e6

static void move_to(kops_job *job, enum job_phase to)
{
	static const bool allowed[3][3] = {
	    [PHASE_NEW] = {[PHASE_OUT] = true},
	    [PHASE_OUT] = {[PHASE_ENDED] = true},
	    [PHASE_ENDED] = {[PHASE_OUT] = true},
	};
	(void)allowed; /* without assertions */
	assert(allowed[job->phase][to]);
	job->phase = to;
}

/* ---- Making one ---- */

static int set_options(kops_job *job, const kops_job_options *options)
{
	Kops__V1__Submit submit = KOPS__V1__SUBMIT__INIT;
	if (options->device && !client_name_is_valid(options->device))
		return client_fail(job->k, KOPS_E_INVALID,
		                   "a device's name is at most 64 printable characters");
	submit.queue = job->queue = options->queue;
	submit.priority = (Kops__V1__Priority)options->priority;
	submit.deadline_us = options->deadline_us;
	submit.timed = options->timed;
	if (options->device)
		submit.device = (char *)options->device;
	job->bytes_len = CLIENT_PREFIX_BYTES;
	int status = client_job_reserve(job, kops__v1__submit__get_packed_size(&submit));
	if (status < 0)
		return status;
	job->bytes_len += kops__v1__submit__pack(&submit, job->bytes + job->bytes_len);
	job->options_end = job->bytes_len;
	return 0;
}

int kops_job_new(kops *k, const kops_job_options *given, kops_job **ret_job)
{
	static const kops_job_options none;
	kops_job_options options = none;
	int status = client_may_use(k);
	if (status < 0)
		return status;
	if (given)
		memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
	if (memcmp(options.reserved, none.reserved, sizeof none.reserved) != 0)
		return client_fail(k, KOPS_E_INVALID,
		                   "reserved members of the job options must be 0; begin with kops_job_options "
		                   "o = {.size = sizeof o}");
	kops_job *job = calloc(1, sizeof *job);
	if (!job)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for a job");
	job->k = k;
	links_init(&job->out);
	links_append(&k->jobs.all, &job->node);
	status = set_options(job, &options);
	if (status < 0) {
		client_job_destroy(job);
		return status;
	}
	*ret_job = job;
	return 0;
}

static void forget_operands(kops_job *job)
{
	for (size_t i = 0; i < job->n_operands; i++) {
		kops_buffer *b = job->operands[i].view.buffer;
		b->operands--;
		client_buffer_settle(b);
	}
	job->n_operands = 0;
}

void client_job_reset(kops_job *job)
{
	assert(job->phase != PHASE_OUT);
	client_job_forget_prepared(job);
	job->number = 0;
	job->submissions = 0;
	job->usual_us = 0;
	forget_operands(job);
	job->bytes_len = job->options_end;
	job->n_ops = 0;
	job->phase = PHASE_NEW;
}

/* Stops counting the job among those in flight by the ring. */
static void leave_ring(kops_job *job)
{
	job->k->ring.runs -= job->by_ring;
	job->by_ring = false;
}

/* Only kops_close() calls this for an OUT job: by then nobody waits for it, and nothing is sent. */
void client_job_destroy(kops_job *job)
{
	if (job->phase == PHASE_OUT) {
		for (size_t i = 0; i < job->n_operands; i++)
			job->operands[i].view.buffer->operands_out--;
		job->k->jobs.n_out--;
	}
	leave_ring(job);
	client_job_forget_prepared(job);
	forget_operands(job);
	links_remove(&job->out);
	links_remove(&job->node);
	free(job->operands);
	free(job->bytes);
	free(job->receipt);
	free(job);
}

void kops_job_free(kops_job *job)
{
	if (!job || client_is_copy(job->k))
		return;
	job->k->link.sock_is_known = false;
	if (job->phase == PHASE_OUT)
		job->abandoned = true;
	else
		client_job_destroy(job);
}

/* ---- Out ---- */

/* Writes the start of the Request, which ends where the Submit's bytes begin. */
static void set_prefix(kops_job *job, size_t submit_bytes)
{
	uint8_t prefix[CLIENT_PREFIX_BYTES];
	size_t n = 0;
	prefix[n++] = TAG_REQUEST_ID;
	n += message_put_varint(prefix + n, job->id);
	prefix[n++] = TAG_REQUEST_SUBMIT;
	n += message_put_varint(prefix + n, submit_bytes);
	job->start = CLIENT_PREFIX_BYTES - n;
	memcpy(job->bytes + job->start, prefix, n);
}

/* Writes the fields behind the ops, and returns their length. */
static size_t set_tail(kops_job *job)
{
	uint8_t *at = job->bytes + job->bytes_len;
	size_t n = 0;
	if (job->number == 0 || !job->k->jobs.prepares)
		return 0;
	at[n++] = TAG_SUBMIT_PREPARE;
	n += message_put_varint(at + n, job->number);
	if (job->only_prepare) {
		at[n++] = TAG_SUBMIT_ONLY;
		at[n++] = 1;
	}
	return n;
}

static int send_run(kops_job *job)
{
	uint8_t run[CLIENT_PREFIX_BYTES], data[2 * CLIENT_PREFIX_BYTES];
	size_t run_bytes = 0, n = 0;
	run[run_bytes++] = TAG_RUN_PREPARED;
	run_bytes += message_put_varint(run + run_bytes, job->number);
	data[n++] = TAG_REQUEST_ID;
	n += message_put_varint(data + n, job->id);
	data[n++] = TAG_REQUEST_RUN;
	n += message_put_varint(data + n, run_bytes);
	memcpy(data + n, run, run_bytes);
	return client_send(job->k, data, n + run_bytes, NULL, job);
}

/* Uses the ring only if no job is in flight by the socket: a wait for the one cannot see the other. */
static bool send_by_ring(kops_job *job)
{
	kops *k = job->k;
	if (k->ring.runs != k->jobs.n_out || !client_ring_put(k, job->number, job->id))
		return false;
	job->sent = job->by_ring = true;
	job->due_us = job->usual_us > 0 ? client_now_us() + (int64_t)job->usual_us : 0;
	return true;
}

int client_job_send(kops_job *job)
{
	if (job->doom)
		return 0;
	if (job->prepared)
		return send_by_ring(job) ? 0 : send_run(job);
	size_t end = job->bytes_len + set_tail(job);
	if (end > MESSAGE_BYTES_MAX) /* there is no room for the tail, so the job is sent whole each time */
		end = job->bytes_len;
	set_prefix(job, end - CLIENT_PREFIX_BYTES);
	return client_send(job->k, job->bytes + job->start, end - job->start, NULL, job);
}

/* ---- Prepared jobs ---- */

void client_job_unprepare(kops *k)
{
	k->jobs.prepares = false;
	for (struct links *at = k->jobs.all.next; at != &k->jobs.all; at = at->next)
		LINKS_ENTRY(at, kops_job, node)->prepared = false;
}

void client_job_forget_prepared(kops_job *job)
{
	Kops__V1__Forget forget = KOPS__V1__FORGET__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	if (!job->prepared)
		return;
	job->prepared = false;
	forget.prepared = job->number;
	request.body_case = KOPS__V1__REQUEST__BODY_FORGET;
	request.forget = &forget;
	client_send_silent(job->k, &request);
}

bool client_job_is_same(const kops_job *a, const kops_job *b)
{
	return a->bytes_len == b->bytes_len &&
	       memcmp(a->bytes + CLIENT_PREFIX_BYTES, b->bytes + CLIENT_PREFIX_BYTES,
	              a->bytes_len - CLIENT_PREFIX_BYTES) == 0;
}

static void use_buffers(kops_job *job)
{
	for (size_t i = 0; i < job->n_operands; i++)
		job->operands[i].view.buffer->operands_out++;
}

static void release_buffers(kops_job *job)
{
	for (size_t i = 0; i < job->n_operands; i++)
		client_buffer_release(job->operands[i].view.buffer);
}

static int may_use_buffer(kops *k, const kops_buffer *b, unsigned op)
{
	if (b->freed)
		return client_fail(k, KOPS_E_INVALID, "op %u uses a freed buffer", op);
	if (b->state == BUFFER_FAILED)
		return client_fail(k, b->status, "op %u uses a buffer that could not be allocated: %.400s", op,
		                   b->why);
	if (b->is_private)
		return client_fail(k, KOPS_E_STATE,
		                   "op %u uses a buffer whose memory in this process was replaced when an "
		                   "unanswered job was abandoned; allocate it again",
		                   op);
	return 0;
}

int client_job_may_submit(kops_job *job)
{
	int status = client_may_use(job->k);
	if (status < 0)
		return status;
	if (job->phase == PHASE_OUT)
		return client_fail(job->k, KOPS_E_STATE, "the job is already running: wait for it to finish");
	if (job->n_ops == 0)
		return client_fail(job->k, KOPS_E_INVALID, "the job has no ops");
	for (size_t i = 0; status == 0 && i < job->n_operands; i++)
		status = may_use_buffer(job->k, job->operands[i].view.buffer, job->operands[i].op);
	return status < 0 ? status : client_receipt_reserve(job);
}

static void begin(kops_job *job, kops_callback *done, void *user)
{
	job->id = client_new_id(job->k, CLIENT_JOB);
	job->done = done;
	job->user = user;
	job->sent = job->cancelled = job->has_receipt = false;
	job->repeatable = true;
	job->deaths = 0;
	job->doom = 0;
	job->retry_after_us = 0;
	job->error[0] = 0;
	job->submissions++;
	if (job->number == 0 && (job->submissions > 1 || job->only_prepare))
		job->number = ++job->k->jobs.last_prepared;
}

int kops_submit(kops_job *job, kops_callback *done, void *user)
{
	kops *k = job->k;
	int status = client_job_may_submit(job);
	if (status < 0)
		return status;
	begin(job, done, user);
	client_link_want(k);
	for (size_t i = 0; k->buffers.any_detached && status == 0 && i < job->n_operands; i++)
		status = client_buffer_attach_missing(k, job->operands[i].view.buffer);
	if (status == 0 && client_can_send(k))
		status = client_job_send(job);
	if (status < 0)
		return status;
	move_to(job, PHASE_OUT);
	use_buffers(job);
	links_append(&k->jobs.out, &job->out);
	k->jobs.n_out++;
	return 0;
}

bool kops_job_is_out(const kops_job *job)
{
	return job->phase == PHASE_OUT;
}

int kops_cancel(kops_job *job)
{
	Kops__V1__Cancel cancel = KOPS__V1__CANCEL__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	kops *k = job->k;
	int status = client_may_use(k);
	if (status < 0)
		return status;
	if (job->phase != PHASE_OUT)
		return client_fail(k, KOPS_E_STATE, "the job is not running");
	job->cancelled = true;
	if (k->link.state == LINK_DOWN)
		job->doom = KOPS_E_CANCELLED;
	cancel.job = job->id;
	request.body_case = KOPS__V1__REQUEST__BODY_CANCEL;
	request.cancel = &cancel;
	client_send_silent(k, &request);
	return 0;
}

/* ---- The end ---- */

/* Returns a buffer of the job that the daemon does not have, which is then the cause; else NULL. */
static const kops_buffer *missing(const kops_job *job)
{
	for (size_t i = 0; i < job->n_operands; i++)
		if (job->operands[i].view.buffer->status < 0)
			return job->operands[i].view.buffer;
	return NULL;
}

static int set_error(kops_job *job, int status, const char *why)
{
	const kops_buffer *b = status == KOPS_E_NOT_FOUND ? missing(job) : NULL;
	if (b) {
		snprintf(job->error, sizeof job->error, "%s: %.400s",
		         b->state == BUFFER_READY ? "kopsd restarted and refused a buffer"
		                                  : "a buffer of this job could not be allocated",
		         b->why);
		return b->status;
	}
	snprintf(job->error, sizeof job->error, "%s", why && why[0] ? why : kops_strerror(status));
	return status;
}

static void run_callback(kops_job *job)
{
	kops *k = job->k;
	k->in_callback = true;
	job->done(job, job->status, job->user);
	k->in_callback = k->link.sock_is_known = false;
}

void client_job_end(kops_job *job, int status, const char *why, const Kops__V1__Reply *reply)
{
	struct waiter *waiter = job->waiter;
	move_to(job, PHASE_ENDED);
	links_remove(&job->out);
	leave_ring(job);
	job->k->jobs.n_out--;
	job->waiter = NULL;
	job->status = status < 0 ? set_error(job, status, why) : 0;
	job->only_prepare = false;
	job->k->ended++;
	release_buffers(job);
	client_waiter_end(waiter, job->status, job->error, reply);
	if (job->abandoned)
		client_job_destroy(job);
	else if (job->done && !client_is_copy(job->k)) /* an earlier callback may have forked */
		run_callback(job);
}

static kops_job *by_id(const kops *k, uint64_t id)
{
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next) {
		kops_job *job = LINKS_ENTRY(at, kops_job, out);
		if (job->id == id)
			return job->sent ? job : NULL;
	}
	return NULL;
}

const char *client_job_answered(kops *k, const Kops__V1__Reply *reply)
{
	kops_job *job = by_id(k, reply->id);
	if (!job)
		return "an unexpected reply about a job";
	if (reply->status == KOPS_E_SHUTDOWN) {
		job->sent = false; /* the job did not run */
		leave_ring(job);
		job->deaths = 0;
		client_link_drain(k);
		return NULL;
	}
	if (reply->status == 0 && reply->body_case != KOPS__V1__REPLY__BODY_RECEIPT)
		return "a reply to a job without a receipt";
	k->link.pause_us = 0;
	if (reply->status == 0) {
		client_receipt_keep(job, reply->receipt);
		job->has_receipt = true;
		job->prepared = reply->receipt->prepared && job->number > 0;
		if (job->prepared)
			client_ring_want(k);
	}
	job->retry_after_us = reply->retry_after_us;
	client_job_end(job, reply->status, reply->message, reply);
	return NULL;
}

const char *client_job_ended_by_ring(kops *k, const struct ring_end *end)
{
	Kops__V1__Receipt receipt = KOPS__V1__RECEIPT__INIT;
	kops_job *job = by_id(k, end->id);

	if (!job || !job->by_ring)
		return "the end of an unknown run in the ring";
	receipt.as_before = true;
	receipt.prepared = (end->flags & RING_PREPARED) != 0;
	receipt.graph = (end->flags & RING_GRAPH) != 0;
	receipt.queue_us = end->queue_us;
	receipt.upload_us = end->upload_us;
	receipt.compute_us = end->compute_us;
	receipt.download_us = end->download_us;
	receipt.total_us = end->total_us;
	receipt.pauses = end->pauses;
	receipt.paused_us = end->paused_us;
	k->link.pause_us = 0;
	client_receipt_keep(job, &receipt);
	job->has_receipt = true;
	double device_us = end->upload_us + end->compute_us + end->download_us;
	job->usual_us = device_us > LONG_US && end->total_us < HOUR_US ? end->total_us : 0;
	client_job_end(job, 0, NULL, NULL);
	return NULL;
}

bool client_job_is_in_flight(const kops *k)
{
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next)
		if (LINKS_ENTRY(at, kops_job, out)->sent)
			return true;
	return false;
}

/* ---- When the connection is gone ---- */

void client_job_refused(kops *k)
{
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next)
		LINKS_ENTRY(at, kops_job, out)->sent = false;
}

void client_job_unsend(kops *k, bool died)
{
	for (struct links *at = k->jobs.out.next; died && at != &k->jobs.out; at = at->next)
		if (LINKS_ENTRY(at, kops_job, out)->sent)
			LINKS_ENTRY(at, kops_job, out)->deaths++;
	client_repeat_decide(k);
	for (struct links *at = k->jobs.out.next; at != &k->jobs.out; at = at->next) {
		kops_job *job = LINKS_ENTRY(at, kops_job, out);
		if (!job->repeatable ||
		    job->only_prepare) /* another daemon may not support it, and would run the job */
			job->doom = KOPS_E_INTERRUPTED;
		else if (job->cancelled)
			job->doom = KOPS_E_CANCELLED;
		job->sent = false;
		leave_ring(job);
	}
}

static const char *doom_sentence(const kops_job *job)
{
	if (job->only_prepare)
		return "kopsd restarted while this job was being prepared; prepare it again";
	if (job->doom == KOPS_E_CANCELLED)
		return "the job was cancelled while kopsd was not connected";
	if (job->deaths >= CLIENT_DEATHS_MAX)
		return "kopsd crashed three times while this job was running, so it is not sent again; see "
		       "kopsd's log (journalctl -u kopsd)";
	if (job->k->link.closed_here)
		return "this program closed libkops's connection to kopsd while this job was running; it may "
		       "have run in part, so it was not sent again: restore its inputs and submit it again";
	if (job->cancelled)
		return "kopsd restarted after this job was cancelled; it may have run";
	return "kopsd restarted while this job was running; its inputs may be overwritten, so it was not sent "
	       "again: restore them and submit it again";
}

void client_job_end_doomed(kops *k)
{
	struct links *at = k->jobs.out.next;
	while (at != &k->jobs.out) {
		kops_job *job = LINKS_ENTRY(at, kops_job, out);
		at = at->next;
		if (job->doom) {
			client_job_end(job, job->doom, doom_sentence(job), NULL);
			at = k->jobs.out.next; /* the callback may have changed the list */
		}
	}
}

void client_job_fail(kops *k, int status, const char *why)
{
	uint64_t last = k->wire.sequence; /* jobs that callbacks submit meanwhile are spared */
	while (!links_is_empty(&k->jobs.out)) {
		kops_job *job = LINKS_ENTRY(k->jobs.out.next, kops_job, out);
		if (job->id >> CLIENT_KIND_BITS > last)
			return;
		client_job_end(job, status, why, NULL);
	}
}

/* ---- What is known of it ---- */

const char *kops_job_error(const kops_job *job)
{
	return job->error;
}

uint64_t kops_job_retry_after_us(const kops_job *job)
{
	return job->retry_after_us;
}
