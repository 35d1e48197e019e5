#include "request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "job.h"
#include "log.h"
#include "message.h"
#include "reply.h"
#include "server.h"
#include "status.h"

#define VERSION_SPOKEN  1
#define CLIENT_NAME_MAX 64

struct ping {
	struct ping *next;
	struct session *session;
	uint64_t id;
};

/* A canary no older than this answers a Ping at once. */
#define CANARY_FRESH_NS 1000000000u

struct request {
	struct session *session;
	const Kops__V1__Request *msg;
	int *fds; /* -1 where taken over */
	unsigned n_fds;
	char why[WHY_BYTES]; /* a handler that fails puts its sentence here, or leaves it empty */
	uint64_t retry_after_us;
};

/* ---- Hello ---- */

static int handle_hello(struct request *r)
{
	const Kops__V1__Hello *hello = r->msg->hello;
	struct session *session = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Welcome welcome = KOPS__V1__WELCOME__INIT;

	if (hello->version_min > VERSION_SPOKEN || hello->version_max < VERSION_SPOKEN) {
		snprintf(r->why, sizeof r->why,
		         "kopsd %s speaks protocol version %d, the client %u to %u; update the older one",
		         KOPS_VERSION, VERSION_SPOKEN, hello->version_min, hello->version_max);
		return KOPS_E_VERSION;
	}
	if (strlen(hello->client) > CLIENT_NAME_MAX) {
		snprintf(r->why, sizeof r->why, "the client's name has more than %d bytes", CLIENT_NAME_MAX);
		return KOPS_E_INVALID;
	}
	snprintf(session->client, sizeof session->client, "%s", hello->client);
	session->state = SESSION_OPEN;
	uv_timer_stop(&session->hello_timer);
	log_debug("session %" PRIu64 ": hello from \"%s\"", session->serial, session->client);

	welcome.version = VERSION_SPOKEN;
	welcome.daemon = (char *)"kopsd " KOPS_VERSION;
	welcome.max_datagram_bytes = MESSAGE_BYTES_MAX;
	welcome.max_ops = MESSAGE_OPS_MAX;
	welcome.max_buffers = session->server->config.max_buffers;
	welcome.max_jobs = session->server->config.max_jobs;
	reply.id = r->msg->id;
	reply.body_case = KOPS__V1__REPLY__BODY_WELCOME;
	reply.welcome = &welcome;
	reply_send(session, &reply, -1);
	return 0;
}

/* ---- Buffers ---- */

static int check_buffer_counts(struct request *r)
{
	const struct session *session = r->session;
	const struct server *server = session->server;
	const struct config *c = &server->config;

	if (session->buffers.count + session->n_dropped_pending >= c->max_buffers)
		snprintf(r->why, sizeof r->why,
		         "the session has %" PRIu64 " buffers, its limit; drop some, or raise max-buffers",
		         c->max_buffers);
	else if (session->account->buffers >= c->max_buffers_per_uid)
		snprintf(r->why, sizeof r->why,
		         "you have %u buffers, a user's limit; drop some, or raise max-buffers-per-uid",
		         session->account->buffers);
	else if (server->n_buffers >= server->n_buffers_max)
		snprintf(r->why, sizeof r->why,
		         "all users have %u buffers, half the mappings that the kernel allows; drop some, or "
		         "raise vm.max_map_count",
		         server->n_buffers);
	else
		return 0;
	return KOPS_E_QUOTA;
}

static int may_add_buffer(struct request *r, uint64_t id, uint64_t bytes)
{
	const struct session *session = r->session;

	if (id == 0 || bytes == 0) {
		snprintf(r->why, sizeof r->why, "a buffer needs an id and a size that are not 0");
		return KOPS_E_INVALID;
	}
	if (idmap_get(&session->buffers, id)) {
		snprintf(r->why, sizeof r->why,
		         "buffer %" PRIu64 " exists already; drop it first or choose another id", id);
		return KOPS_E_EXISTS;
	}
	return check_buffer_counts(r);
}

/* Takes over the reference. */
static int add_buffer(struct request *r, uint64_t id, struct buffer *buffer)
{
	int rc = idmap_put(&r->session->buffers, id, buffer);

	if (rc < 0) {
		buffer_unref(buffer);
		return rc;
	}
	buffer->id = id;
	return 0;
}

static int handle_import(struct request *r)
{
	const Kops__V1__Import *import = r->msg->import;
	struct session *session = r->session;
	struct buffer *buffer;
	int fd, rc;

	if (r->n_fds != 1) {
		snprintf(r->why, sizeof r->why, "Import needs one descriptor, %u came", r->n_fds);
		return KOPS_E_FD;
	}
	rc = may_add_buffer(r, import->buffer, import->bytes);
	if (rc < 0)
		return rc;
	fd = r->fds[0];
	r->fds[0] = -1;
	rc = buffer_import(session->server, session->account, fd, import->bytes, import->read_only, &buffer,
	                   r->why);
	if (rc < 0)
		return rc;
	rc = add_buffer(r, import->buffer, buffer);
	if (rc == 0)
		reply_ok(session, r->msg->id);
	return rc;
}

static void reply_lent(struct session *session, uint64_t request, const struct buffer *buffer)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Lent lent = KOPS__V1__LENT__INIT;

	lent.bytes = buffer->memory.bytes;
	if (buffer->device)
		lent.device = (char *)device_name(buffer->device);
	reply.id = request;
	reply.body_case = KOPS__V1__REPLY__BODY_LENT;
	reply.lent = &lent;
	reply_send(session, &reply, buffer->segment ? buffer->segment->fd : -1);
}

void request_buffer_settled(struct buffer *buffer)
{
	struct session *session = buffer->session;
	uint64_t request = buffer->request;
	bool named = idmap_get(&session->buffers, buffer->id) == buffer;
	struct buffer **link = &session->pending;

	while (*link != buffer)
		link = &(*link)->next_pending;
	*link = buffer->next_pending;
	buffer->session = NULL;
	if (!named)
		session->n_dropped_pending--;
	if (buffer->state == BUFFER_READY) {
		reply_lent(session, request, buffer);
		return;
	}
	if (named) {
		idmap_remove(&session->buffers, buffer->id);
		buffer_unref(buffer);
	}
	reply_error(session, request, buffer->failure, NULL, 0);
}

static int make_buffer(struct request *r, struct buffer **ret_buffer)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct device *device;
	int rc;

	if (alloc->kind == KOPS__V1__BUFFER_KIND__SHARED)
		return buffer_lend(session->server, session->account, alloc->bytes, ret_buffer, r->why);
	if (alloc->kind != KOPS__V1__BUFFER_KIND__RESIDENT) {
		snprintf(r->why, sizeof r->why, "kind %d is neither SHARED (0) nor RESIDENT (1)",
		         (int)alloc->kind);
		return KOPS_E_INVALID;
	}
	device = server_device(session->server, alloc->device, NULL);
	if (!device) {
		snprintf(r->why, sizeof r->why,
		         "there is no device \"%.32s\"; `kops-client devices` lists them", alloc->device);
		return KOPS_E_DEVICE;
	}
	rc = buffer_resident(session->server, session->account, device, alloc->bytes, ret_buffer, r->why);
	if (rc == 0)
		(*ret_buffer)->lost = alloc->lost;
	return rc;
}

static int handle_alloc(struct request *r)
{
	const Kops__V1__Alloc *alloc = r->msg->alloc;
	struct session *session = r->session;
	struct buffer *buffer;
	int rc = may_add_buffer(r, alloc->buffer, alloc->bytes);

	if (rc < 0)
		return rc;
	rc = make_buffer(r, &buffer);
	if (rc < 0)
		return rc;
	rc = add_buffer(r, alloc->buffer, buffer);
	if (rc < 0)
		return rc;
	if (buffer->state == BUFFER_PENDING) {
		buffer->session = session;
		buffer->request = r->msg->id;
		buffer->next_pending = session->pending;
		session->pending = buffer;
	} else {
		reply_lent(session, r->msg->id, buffer);
	}
	return 0;
}

static int handle_drop(struct request *r)
{
	struct buffer *buffer = idmap_remove(&r->session->buffers, r->msg->drop->buffer);

	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, r->msg->drop->buffer);
		return KOPS_E_NOT_FOUND;
	}
	if (buffer->session)
		r->session->n_dropped_pending++;
	buffer->given_back = true;
	buffer_unref(buffer);
	reply_ok(r->session, r->msg->id);
	return 0;
}

/* ---- Submit ---- */

#define X(name, NAME) extern const struct op op_##name;
#include "ops.def"
#undef X

static const struct op *const op_of_case[] = {
#define X(name, NAME) [KOPS__V1__OP__PARAMS_##NAME] = &op_##name,
#include "ops.def"
#undef X
};

static int copy_view(const Kops__V1__View *msg, struct view *v, char why[WHY_BYTES])
{
	if (msg->n_shape < 1 || msg->n_shape > KOPS_RANK_MAX) {
		snprintf(why, WHY_BYTES, "a view has %zu extents; 1 to %d are allowed", msg->n_shape,
		         KOPS_RANK_MAX);
		return KOPS_E_SHAPE;
	}
	if (msg->n_strides && msg->n_strides != msg->n_shape) {
		snprintf(why, WHY_BYTES, "a view has %zu extents but %zu strides", msg->n_shape,
		         msg->n_strides);
		return KOPS_E_SHAPE;
	}
	if (!dtype_size((kops_dtype)msg->dtype)) {
		snprintf(why, WHY_BYTES, "%d is no element type", (int)msg->dtype);
		return KOPS_E_DTYPE;
	}
	v->dtype = (kops_dtype)msg->dtype;
	v->offset = msg->offset;
	v->rank = (uint32_t)msg->n_shape;
	memcpy(v->shape, msg->shape, msg->n_shape * sizeof v->shape[0]);
	if (msg->n_strides)
		memcpy(v->strides, msg->strides, msg->n_strides * sizeof v->strides[0]);
	else
		view_make_dense(v);
	return 0;
}

/* Binds one view to its buffer. Shapes among views are the op's own business. */
static int bind_view(struct request *r, struct job *job, const Kops__V1__View *msg, struct view *v,
                     bool is_output, struct job_buffer **ret_use)
{
	struct buffer *buffer;
	uint64_t lo, hi;
	int rc;

	if (!msg) {
		snprintf(r->why, sizeof r->why, "an operand is missing");
		return KOPS_E_INVALID;
	}
	rc = copy_view(msg, v, r->why);
	if (rc < 0)
		return rc;
	buffer = idmap_get(&r->session->buffers, msg->buffer);
	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, msg->buffer);
		return KOPS_E_NOT_FOUND;
	}
	rc = view_extent(v, buffer->memory.bytes, &lo, &hi);
	if (rc < 0) {
		snprintf(r->why, sizeof r->why,
		         "a view at byte %" PRIu64
		         " with its shape and strides does not lie, aligned to its elements, inside "
		         "buffer %" PRIu64 " of %" PRIu64 " bytes",
		         v->offset, msg->buffer, buffer->memory.bytes);
		return rc;
	}
	if (is_output && buffer->memory.read_only) {
		snprintf(r->why, sizeof r->why, "buffer %" PRIu64 " was imported read-only", msg->buffer);
		return KOPS_E_READONLY;
	}
	v->space = &buffer->memory;
	*ret_use = job_use(job, buffer);
	return 0;
}

/* An accepted output has each element at an address of its own, so as many bytes as the buffer are all its
 * bytes. */
static bool covers_buffer(const struct view *output, const struct buffer *buffer)
{
	return view_elements(output) * dtype_size(output->dtype) == buffer->memory.bytes;
}

static void note_use(const struct op_args *args, struct job_buffer *const uses[OP_VIEWS_MAX])
{
	unsigned n = args->op->n_inputs;

	for (unsigned i = 0; i < n; i++)
		uses[i]->reads |= !uses[i]->fills;
	if (args->op->reads_output(args))
		uses[n]->reads |= !uses[n]->fills;
	uses[n]->fills |= covers_buffer(&args->views[n], uses[n]->buffer);
}

static int bind_op(struct request *r, struct job *job, unsigned index, const Kops__V1__Op *msg)
{
	const Kops__V1__View *views[OP_VIEWS_MAX] = {NULL};
	struct job_buffer *uses[OP_VIEWS_MAX];
	struct run_op *op = &job->ops[index];
	unsigned c = (unsigned)msg->params_case;
	int rc;

	if (c >= sizeof op_of_case / sizeof op_of_case[0] || !op_of_case[c]) {
		snprintf(r->why, sizeof r->why, "an op without parameters");
		return KOPS_E_INVALID;
	}
	op->args.op = op_of_case[c];
	op->pinned = msg->kernel;
	op->args.op->decode(msg, &op->args, views);
	for (unsigned i = 0; i <= op->args.op->n_inputs; i++) {
		rc = bind_view(r, job, views[i], &op->args.views[i], i == op->args.op->n_inputs, &uses[i]);
		if (rc < 0)
			return rc;
	}
	rc = op->args.op->check(&op->args, r->why);
	if (rc == 0)
		note_use(&op->args, uses);
	return rc;
}

/* Puts which op it was in front of the sentence, where there are several. */
static void name_op(struct request *r, unsigned index, unsigned n_ops, const struct op *op)
{
	char sentence[WHY_BYTES];

	if (n_ops == 1 && !op)
		return;
	memcpy(sentence, r->why, sizeof sentence);
	snprintf(r->why, sizeof r->why, "op %u of %u (%s): %.200s", index + 1, n_ops, op ? op->name : "?",
	         sentence);
}

/* Plans the job on every device it may use and picks one. */
static int place(struct request *r, struct job *job, const char *device_name_wanted, unsigned *ret_index)
{
	struct server *server = r->session->server;
	bool allowed[SCHED_DEVICES_MAX] = {false};
	double cost_us[SCHED_DEVICES_MAX] = {0};
	const struct backend *kind = NULL;
	unsigned only = server->n_devices;
	int rc = 0;

	if (*device_name_wanted && !server_device(server, device_name_wanted, &only)) {
		snprintf(r->why, sizeof r->why,
		         "there is no device \"%.32s\"; `kops-client devices` lists them", device_name_wanted);
		return KOPS_E_DEVICE;
	}
	for (unsigned i = 0; i < server->n_devices; i++) {
		const struct device *d = server->devices[i];
		int planned;
		/* Devices stand in order of preference by kind: the CPU serves only what no GPU can. */
		if ((*device_name_wanted && i != only) || (kind && device_backend(d) != kind))
			continue;
		planned = device_plan(d, &job->run);
		if (planned == 0) {
			allowed[i] = true;
			cost_us[i] = job->run.plan_us;
			kind = device_backend(d);
		} else if (rc == 0) {
			rc = planned;
			snprintf(r->why, sizeof r->why, "%s", job->run.error);
		}
	}
	*ret_index = sched_place(&server->sched, allowed, cost_us, server->n_devices);
	if (*ret_index == server->n_devices)
		return rc < 0 ? rc : KOPS_E_DEVICE;
	r->why[0] = '\0';
	return device_plan(server->devices[*ret_index], &job->run);
}

static int busy(struct request *r, double backlog_us, uint64_t limit_us, const char *what)
{
	double wait_us = backlog_us > (double)limit_us ? backlog_us - (double)limit_us : backlog_us / 16.0;

	r->retry_after_us = wait_us > 1000.0 ? (uint64_t)wait_us : 1000;
	snprintf(r->why, sizeof r->why, "%s; try again in %.0f ms", what, (double)r->retry_after_us / 1e3);
	return KOPS_E_BUSY;
}

static int check_room(struct request *r, unsigned index)
{
	const struct server *server = r->session->server;
	const struct config *c = &server->config;
	const struct sched_flow *flow = &r->session->account->flow;
	double backlog_us = server->sched.backlog_us[index];

	if (r->session->jobs.count >= c->max_jobs)
		return busy(r, backlog_us, UINT64_MAX, "this session has max-jobs jobs out");
	if (r->session->account->jobs >= c->max_jobs_per_uid)
		return busy(r, backlog_us, UINT64_MAX, "this user has max-jobs-per-uid jobs out");
	if (sched_is_full(&server->sched, flow, index, (double)c->max_backlog * 1e3))
		return busy(r, backlog_us, c->max_backlog * 1000, "the device's queue is full (max-backlog)");
	return 0;
}

/* Nothing stops a job that runs: one that is too long would keep the device from everybody. */
static int check_length(struct request *r, double plan_us)
{
	uint64_t limit_ms = r->session->server->config.hang_timeout;

	if (plan_us <= (double)limit_ms * 1e3)
		return 0;
	snprintf(r->why, sizeof r->why,
	         "the job would take an estimated %.3g s, more than the %.3g s of hang-timeout; split it",
	         plan_us / 1e6, (double)limit_ms / 1e3);
	return KOPS_E_QUOTA;
}

static int bind_job(struct request *r, struct job *job, const Kops__V1__Submit *submit)
{
	for (unsigned i = 0; i < submit->n_ops; i++) {
		int rc = bind_op(r, job, i, submit->ops[i]);
		if (rc < 0) {
			name_op(r, i, (unsigned)submit->n_ops, job->ops[i].args.op);
			return rc;
		}
	}
	return 0;
}

static int check_submit(struct request *r, const Kops__V1__Submit *submit)
{
	if (r->session->server->state != SERVER_SERVING) {
		snprintf(r->why, sizeof r->why, "kopsd is stopping; connect again to reach its successor");
		return KOPS_E_SHUTDOWN;
	}
	if (submit->n_ops < 1 || submit->n_ops > MESSAGE_OPS_MAX || (unsigned)submit->priority > KOPS_LOW) {
		snprintf(r->why, sizeof r->why, "a job has 1 to %d ops and a priority of 0 to %d",
		         MESSAGE_OPS_MAX, KOPS_LOW);
		return KOPS_E_INVALID;
	}
	if (idmap_get(&r->session->jobs, r->msg->id)) {
		snprintf(r->why, sizeof r->why, "a job with request id %" PRIu64 " is still out", r->msg->id);
		return KOPS_E_EXISTS;
	}
	return 0;
}

static int handle_submit(struct request *r)
{
	const Kops__V1__Submit *submit = r->msg->submit;
	uint64_t now = clock_ns(), deadline_ns;
	struct job *job;
	unsigned index;
	int rc = check_submit(r, submit);

	if (rc < 0)
		return rc;
	job = job_new(r->session->server, r->session, r->msg->id, (unsigned)submit->n_ops);
	if (!job)
		return KOPS_E_NOMEM;
	job->arrived_ns = now;
	job->sched.priority = (kops_priority)submit->priority;
	if (submit->deadline_us && !__builtin_mul_overflow(submit->deadline_us, 1000u, &deadline_ns) &&
	    !__builtin_add_overflow(deadline_ns, now, &deadline_ns))
		job->deadline_ns = deadline_ns;
	rc = bind_job(r, job, submit);
	if (rc == 0)
		rc = place(r, job, submit->device, &index);
	if (rc == 0)
		rc = check_length(r, job->run.plan_us);
	if (rc == 0)
		rc = check_room(r, index);
	if (rc == 0)
		rc = job_submit(job, index, submit->queue);
	if (rc < 0)
		job_free(job);
	return rc;
}

static int handle_cancel(struct request *r)
{
	uint64_t id = r->msg->cancel->job;
	struct job *job = idmap_get(&r->session->jobs, id);

	if (!job) {
		snprintf(r->why, sizeof r->why, "no job with request id %" PRIu64 " is out; it may have ended",
		         id);
		return KOPS_E_NOT_FOUND;
	}
	if (job->state != JOB_QUEUED) {
		snprintf(r->why, sizeof r->why, "job %" PRIu64 " runs already and will finish", id);
		return KOPS_E_BUSY;
	}
	job_end_queued(job, JOB_CANCELLED, KOPS_E_CANCELLED, NULL);
	reply_ok(r->session, r->msg->id);
	jobs_dispatch(r->session->server);
	return 0;
}

/* ---- Questions ---- */

static int handle_describe(struct request *r)
{
	reply_description(r->session, r->msg->id);
	return 0;
}

static int handle_stats(struct request *r)
{
	reply_statistics(r->session, r->msg->id);
	return 0;
}

static void answer_ping(struct session *session, uint64_t id)
{
	const struct server *server = session->server;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Pong pong = KOPS__V1__PONG__INIT;
	char why[WHY_BYTES];

	for (unsigned i = 0; i < server->n_devices; i++)
		if (!device_is_healthy(server->devices[i], server->config.hang_timeout * 1000000)) {
			snprintf(why, sizeof why,
			         "device %s does not answer its canary job rightly; see kopsd's log",
			         device_name(server->devices[i]));
			reply_error(session, id, KOPS_E_FAULT, why, 0);
			return;
		}
	pong.devices = server->n_devices;
	reply.id = id;
	reply.body_case = KOPS__V1__REPLY__BODY_PONG;
	reply.pong = &pong;
	reply_send(session, &reply, -1);
}

/* A device at work is judged by its work; an idle one by a canary that is fresh or has to be. */
static bool needs_canary(const struct device *d)
{
	return device_runs_out(d) == 0 && device_canary_age_ns(d) > CANARY_FRESH_NS;
}

static int handle_ping(struct request *r)
{
	struct server *server = r->session->server;
	struct ping *ping;
	bool wait = false;

	for (unsigned i = 0; i < server->n_devices; i++)
		if (needs_canary(server->devices[i])) {
			device_start_canary(server->devices[i]);
			wait |= device_canary_is_out(server->devices[i]);
		}
	server_watch_runs(server);
	if (!wait) {
		answer_ping(r->session, r->msg->id);
		return 0;
	}
	ping = calloc(1, sizeof *ping);
	if (!ping)
		return KOPS_E_NOMEM;
	ping->session = r->session;
	ping->id = r->msg->id;
	ping->next = server->pings;
	server->pings = ping;
	return 0;
}

void request_canaries_back(struct server *server)
{
	struct ping *ping = server->pings, *next;

	for (unsigned i = 0; i < server->n_devices; i++)
		if (device_canary_is_out(server->devices[i]))
			return;
	server->pings = NULL;
	for (; ping; ping = next) {
		next = ping->next;
		answer_ping(ping->session, ping->id);
		free(ping);
	}
}

void request_forget(struct session *session)
{
	for (struct ping **link = &session->server->pings, *ping; (ping = *link);) {
		if (ping->session != session) {
			link = &ping->next;
			continue;
		}
		*link = ping->next;
		free(ping);
	}
}

/* ---- The table of verbs ---- */

static const struct verb {
	const char *name;
	int (*handle)(struct request *r); /* replies and returns 0, or returns the status to reply with */
	enum session_state state;         /* where it is allowed */
	unsigned fds_max;
} verbs[] = {
    [KOPS__V1__REQUEST__BODY_HELLO] = {"Hello", handle_hello, SESSION_GREETING, 0},
    [KOPS__V1__REQUEST__BODY_IMPORT] = {"Import", handle_import, SESSION_OPEN, 1},
    [KOPS__V1__REQUEST__BODY_ALLOC] = {"Alloc", handle_alloc, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_DROP] = {"Drop", handle_drop, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_SUBMIT] = {"Submit", handle_submit, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_CANCEL] = {"Cancel", handle_cancel, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_DESCRIBE] = {"Describe", handle_describe, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_STATS] = {"Stats", handle_stats, SESSION_OPEN, 0},
    [KOPS__V1__REQUEST__BODY_PING] = {"Ping", handle_ping, SESSION_OPEN, 0},
};

static int perform(struct request *r, char why[WHY_BYTES])
{
	unsigned c = (unsigned)r->msg->body_case;
	const struct verb *verb = c < sizeof verbs / sizeof verbs[0] && verbs[c].handle ? &verbs[c] : NULL;
	int rc;

	if (!verb) {
		snprintf(why, WHY_BYTES, "a request without a verb");
		return KOPS_E_PROTOCOL;
	}
	if (verb->state != r->session->state) {
		snprintf(why, WHY_BYTES, "%s %s Hello", verb->name,
		         verb->state == SESSION_OPEN ? "before" : "after another");
		return KOPS_E_PROTOCOL;
	}
	if (r->n_fds > verb->fds_max) {
		snprintf(why, WHY_BYTES, "%s with %u descriptors", verb->name, r->n_fds);
		return KOPS_E_PROTOCOL;
	}
	rc = verb->handle(r);
	if (rc == 0)
		return 0;
	log_debug("session %" PRIu64 " request %" PRIu64 ": %s: %s: %s", r->session->serial, r->msg->id,
	          verb->name, status_name(rc), r->why[0] ? r->why : status_text(rc));
	reply_error(r->session, r->msg->id, rc, r->why, r->retry_after_us);
	if (r->session->state == SESSION_GREETING) {
		snprintf(why, WHY_BYTES, "Hello refused: %.200s", r->why);
		return KOPS_E_PROTOCOL;
	}
	return 0;
}

int request_handle(struct session *session, size_t len, int *fds, unsigned n_fds, char why[WHY_BYTES])
{
	struct server *server = session->server;
	const char *refusal = NULL;
	struct request r = {.session = session, .fds = fds, .n_fds = n_fds};
	int rc;

	r.msg = (const Kops__V1__Request *)message_unpack(&kops__v1__request__descriptor, server->in, len,
	                                                  MESSAGE_UNKNOWN_REFUSED, &server->arena, &refusal);
	if (r.msg) {
		rc = perform(&r, why);
	} else {
		snprintf(why, WHY_BYTES, "%s", refusal);
		rc = KOPS_E_PROTOCOL;
	}
	for (unsigned i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}
