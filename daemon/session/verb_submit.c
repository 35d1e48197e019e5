/* verb_submit.c: Submit and Cancel. From the wire to a job that is bound to its buffers, placed and queued. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "job/job.h"
#include "server.h"
#include "session/reply.h"
#include "session/verbs.h"

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

static void explain_extent(const struct view *v, uint64_t id, uint64_t bytes, int code, char why[WHY_BYTES])
{
	if (code == KOPS_E_INVALID)
		snprintf(why, WHY_BYTES,
		         "a view begins at byte %" PRIu64 " of buffer %" PRIu64
		         ", which is no multiple of the %zu bytes of a %s",
		         v->offset, id, dtype_size(v->dtype), dtype_name(v->dtype));
	else
		snprintf(why, WHY_BYTES,
		         "a view at byte %" PRIu64
		         " with its shape and strides does not lie inside buffer %" PRIu64 " of %" PRIu64
		         " bytes",
		         v->offset, id, bytes);
}

#define PAGE_BYTES 4096u

/* The pages that elements over `span` bytes of memory may lie on. */
static uint64_t pages_bytes(const struct view *v, uint64_t span)
{
	uint64_t pages = span / PAGE_BYTES + 2, elements = view_elements(v);

	/* An element may lie on two pages only if it begins at one's end, and elements are aligned. */
	return (elements < pages ? elements : pages) * PAGE_BYTES;
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
		explain_extent(v, msg->buffer, buffer->memory.bytes, rc, r->why);
		return rc;
	}
	if (is_output && buffer->memory.read_only) {
		snprintf(r->why, sizeof r->why, "buffer %" PRIu64 " was imported read-only", msg->buffer);
		return KOPS_E_READONLY;
	}
	v->space = &buffer->memory;
	*ret_use = job_use(job, buffer);
	(*ret_use)->reach_bytes += pages_bytes(v, hi - lo);
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

/*
 * With what was measured there for ops that leave the choice of a kernel to us: for the very shape, if there is
 * an autotune, or for the class of it. True: some of it was for the very shape.
 */
static bool look_up(const struct server *server, unsigned index, struct job *job, struct autotune *autotune)
{
	bool found = false;

	for (unsigned i = 0; i < job->run.n_ops; i++) {
		struct run_op *op = &job->ops[i];

		op->tuned = NULL;
		if (*op->pinned)
			continue;
		if (i > 0 && job->n_alike > 0) { /* what holds for the first does for all */
			op->tuned = job->ops[0].tuned;
			continue;
		}
		if (autotune)
			op->tuned = autotune_find(autotune, &op->args, job->n_alike);
		found |= op->tuned != NULL;
		if (!op->tuned)
			op->tuned = tuning_find(server->tuning[index], &op->args);
	}
	return found;
}

/* Nothing stops a job that runs: one that is too long would keep the device from everybody, or look hung. */
static uint64_t longest_ms(const struct config *c, const struct device *device, const char **ret_setting)
{
	bool hangs = device_can_hang(device) && c->hang_timeout < c->max_run_time;

	*ret_setting = hangs ? "hang-timeout" : "max-run-time";
	return hangs ? c->hang_timeout : c->max_run_time;
}

static bool is_short_enough(const struct server *server, const struct device *device, double plan_us)
{
	const char *setting;

	return plan_us <= (double)longest_ms(&server->config, device, &setting) * 1e3;
}

/*
 * A row that jobs of the shape showed, or that is on trial, must not be why a job is refused that another row
 * can do. Where it is the row's own fault it is not asked for again; that memory is taken passes.
 */
static int plan_on(const struct server *server, unsigned index, struct job *job)
{
	struct device *device = server->devices[index];
	struct autotune *autotune = server->autotune[index];

	job->n_alike = autotune ? autotune_alike(&job->run) : 0;
	bool autotuned = look_up(server, index, job, autotune);
	int rc = device_plan(device, &job->run);
	bool at_fault = rc < 0 || !is_short_enough(server, device, job->run.plan_us);
	if (!autotuned || rc == KOPS_E_DEVICE ||
	    (!at_fault && job->run.device_bytes <= device_room_bytes(device)))
		return rc;
	look_up(server, index, job, NULL);
	rc = device_plan(device, &job->run);
	if (job->n_alike > 0 && at_fault && rc == 0 && is_short_enough(server, device, job->run.plan_us))
		autotune_reject(autotune, &job->ops[0].args, job->n_alike);
	job->n_alike = 0;
	return rc;
}

/* Plans the job on every device it may use and picks one. */
static int place(struct request *r, struct job *job, const char *device_name_wanted, unsigned *ret_index)
{
	struct server *server = r->session->server;
	bool allowed[SCHED_DEVICES_MAX] = {false};
	double cost_us[SCHED_DEVICES_MAX] = {0};
	const struct backend *kind = NULL;
	unsigned only = server->n_devices, last = server->n_devices;
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
		planned = plan_on(server, i, job);
		last = i;
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
	/* The last plan is what the run holds. */
	rc = *ret_index == last ? 0 : plan_on(server, *ret_index, job);
	for (unsigned i = 0; i < job->run.n_ops; i++) {
		job->ops[i].pinned = "";  /* both have been heeded; this one lies in the request's arena, */
		job->ops[i].tuned = NULL; /* and this one in a table that a reload replaces */
	}
	return rc;
}

static int busy(struct request *r, double backlog_us, uint64_t limit_us, const char *what)
{
	double wait_us = backlog_us > (double)limit_us ? backlog_us - (double)limit_us : backlog_us / 16.0;

	r->retry_after_us = wait_us > 1000.0 ? (uint64_t)wait_us : 1000;
	snprintf(r->why, sizeof r->why, "%s; try again in %.0f ms", what, (double)r->retry_after_us / 1e3);
	return KOPS_E_BUSY;
}

/* Of the device that it goes to. */
static int check_room(struct request *r, unsigned index)
{
	const struct server *server = r->session->server;
	const struct config *c = &server->config;
	double backlog_us = server->sched.backlog_us[index];

	if (!sched_is_full(&server->sched, &r->session->account->flow, index, (double)c->max_backlog * 1e3))
		return 0;
	return busy(r, backlog_us, c->max_backlog * 1000, "the device's queue is full (max-backlog)");
}

static int check_length(struct request *r, const struct device *device, double plan_us)
{
	const struct server *server = r->session->server;
	const char *setting;
	uint64_t limit_ms;

	if (is_short_enough(server, device, plan_us))
		return 0;
	limit_ms = longest_ms(&server->config, device, &setting);
	snprintf(r->why, sizeof r->why,
	         "the job would take an estimated %.3g s, more than the %.3g s of %s; split it", plan_us / 1e6,
	         (double)limit_ms / 1e3, setting);
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

/* Whether no device of those that the job may go to takes more of this user. */
static bool is_full_everywhere(const struct request *r, const char *device_name_wanted)
{
	const struct server *server = r->session->server;
	const struct sched_flow *flow = &r->session->account->flow;
	unsigned first = 0, end = server->n_devices;

	if (*device_name_wanted && server_device(server, device_name_wanted, &first))
		end = first + 1;
	for (unsigned i = first; i < end; i++)
		if (!sched_is_full(&server->sched, flow, i, (double)server->config.max_backlog * 1e3))
			return false;
	return true;
}

/* Before the work of finding out what the job is. */
static int check_limits(struct request *r, const char *device_name_wanted)
{
	const struct server *server = r->session->server;
	const struct config *c = &server->config;
	double backlog_us = 0;

	for (unsigned i = 0; i < server->n_devices; i++)
		backlog_us =
		    server->sched.backlog_us[i] > backlog_us ? server->sched.backlog_us[i] : backlog_us;
	if (r->session->jobs.count >= c->max_jobs)
		return busy(r, backlog_us, UINT64_MAX, "this session has max-jobs jobs out");
	if (r->session->account->jobs >= c->max_jobs_per_uid)
		return busy(r, backlog_us, UINT64_MAX, "this user has max-jobs-per-uid jobs out");
	if (is_full_everywhere(r, device_name_wanted))
		return busy(r, backlog_us, c->max_backlog * 1000, "the device's queue is full (max-backlog)");
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
	return check_limits(r, submit->device);
}

/* Jobs that may have ended the daemon before: see marks.h. */
static int check_marks(struct request *r, struct job *job)
{
	struct marks *marks = r->session->server->marks;
	unsigned deaths;

	if (!marks)
		return 0;
	job->shape = marks_shape(&job->run);
	deaths = marks_deaths(marks, r->session->account->uid, job->shape);
	job->is_suspect = deaths > 0;
	if (deaths < MARKS_DEATHS_MAX)
		return 0;
	snprintf(r->why, sizeof r->why,
	         "kopsd died %u times in a row while such a job of yours was at work, the last time with no "
	         "other; for an hour it is refused: use other shapes or another kernel, and see kopsd's log",
	         deaths);
	return KOPS_E_INTERRUPTED;
}

int verb_submit(struct request *r)
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
	job->run.timed = job->timed = submit->timed;
	if (submit->deadline_us && !__builtin_mul_overflow(submit->deadline_us, 1000u, &deadline_ns) &&
	    !__builtin_add_overflow(deadline_ns, now, &deadline_ns))
		job->deadline_ns = deadline_ns;
	rc = bind_job(r, job, submit);
	if (rc == 0)
		rc = place(r, job, submit->device, &index);
	if (rc == 0)
		rc = check_length(r, r->session->server->devices[index], job->run.plan_us);
	if (rc == 0)
		rc = check_room(r, index);
	if (rc == 0)
		rc = check_marks(r, job);
	if (rc == 0)
		rc = job_submit(job, index, submit->queue);
	if (rc < 0)
		job_free(job);
	return rc;
}

int verb_cancel(struct request *r)
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
