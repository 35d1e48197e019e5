#include "verb/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "show.h"

#define TIMEOUT_MS_DEFAULT 30000
#define RETRY_US_MIN       200
#define RETRY_US_MAX       200000

static void sleep_us(uint64_t us)
{
	struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* Runs the job until it is done, refused for good, or out of time. */
static int run_patiently(struct cli *cli, kops_job *job)
{
	uint32_t timeout_ms = cli->flags.timeout_ms ? cli->flags.timeout_ms : TIMEOUT_MS_DEFAULT;
	double end = cli_now_us() + timeout_ms * 1e3;
	int rc;

	for (;;) {
		rc = kops_run(job);
		if (rc != KOPS_E_BUSY || cli_now_us() >= end)
			break;
		sleep_us(clamp(kops_job_retry_after_us(job), RETRY_US_MIN, RETRY_US_MAX));
	}
	if (rc == KOPS_E_TIMEOUT)
		return cli_fail(cli, CLI_TIMED_OUT, "no answer within %s; --timeout 2min waits longer",
		                show_us(timeout_ms * 1e3).text);
	if (rc < 0) {
		const char *sentence = kops_job_error(job);
		return cli_fail_kops(cli, rc, sentence[0] ? sentence : kops_error(cli->handle));
	}
	return CLI_OK;
}

int task_run(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job,
             double *ret_us)
{
	kops_job_options options = {.size = sizeof(options), .priority = cli->flags.priority, .device = device};
	double start = cli_now_us();
	kops_job *job;

	int rc = kops_job_new(cli->handle, &options, &job);
	if (rc < 0)
		return cli_fail_kops(cli, rc, kops_error(cli->handle));
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = steps[i].op->enqueue(job, &steps[i]);
	if (rc < 0)
		rc = cli_fail_kops(cli, rc, kops_error(cli->handle));
	else
		rc = run_patiently(cli, job);
	if (rc != CLI_OK) {
		kops_job_free(job);
		return rc;
	}
	*ret_us = cli_now_us() - start;
	*ret_job = job;
	return CLI_OK;
}

int task_check(struct cli *cli, const struct step *step, struct check *ret_check)
{
	if (step_check(step, ret_check) < 0)
		return cli_fail(cli, CLI_FAILED, "out of memory for --check");
	return CLI_OK;
}

int task_print(struct cli *cli, const char *name, const struct elements *e)
{
	if (isatty(STDOUT_FILENO)) {
		show_matrix(stdout, name, e);
		return cli_flush(cli);
	}
	if (sink_write_raw(STDOUT_FILENO, "standard output", e) == 0)
		return CLI_OK;
	cli->silent = errno == EPIPE;
	return cli_fail(cli, CLI_FAILED, "cannot write to standard output: %s", strerror(errno));
}

void task_json_end(const struct cli *cli, struct json *json, const kops_job *job,
                   const struct task_times *times)
{
	json_object(json, "client");
	json_us(json, "connect_us", cli->connect_us);
	json_us(json, "read_us", times->read_us);
	json_us(json, "job_us", times->job_us);
	json_us(json, "write_us", times->write_us);
	json_close_object(json);
	show_receipt_json(json, kops_job_receipt(job));
}

/* ---- one op on files ---- */

struct one_op {
	struct cli *cli;
	const struct task *task;
	struct step steps[2]; /* a copy of `old` into the result where that has another order; then the op */
	size_t n_steps;
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	uint64_t bytes; /* of the result */
	struct sink *sink;
	struct elements old; /* for the check */
	void *old_copy;
	kops_job *job;
	struct task_times times;
	bool checked;
	struct check check;
};

static struct step *op_of(struct one_op *o)
{
	return &o->steps[o->n_steps - 1];
}

/* The shape of the result, before any element is read. */
static int plan(struct one_op *o)
{
	const struct task *task = o->task;
	struct step step = step_of(task->op);
	char *why = o->cli->why;

	for (unsigned i = 0; i < step.op->n_inputs; i++) {
		step.in[i] =
		    kops_tensor(NULL, 0, task->inputs[i]->dtype, task->inputs[i]->rank, task->inputs[i]->shape);
		if (task->transposed[i])
			step.in[i] = kops_transposed(step.in[i]);
	}
	if (step_shape(&step, &o->rank, o->shape, why) < 0 ||
	    step_bytes(step.in[0].dtype, o->rank, o->shape, &o->bytes, why) < 0)
		return CLI_FAILED;
	const struct source *old = task->old;
	if (old == NULL)
		return CLI_OK;
	if (old->dtype != step.in[0].dtype)
		return cli_fail(o->cli, CLI_FAILED, "%s holds %s, but the product is %s", old->path,
		                element_type_name(old->dtype), element_type_name(step.in[0].dtype));
	if (old->rank != o->rank || memcmp(old->shape, o->shape, o->rank * sizeof(o->shape[0])) != 0)
		return cli_fail(o->cli, CLI_FAILED, "%s is %s, but the product is %s", old->path,
		                show_shape(old->rank, old->shape).text, show_shape(o->rank, o->shape).text);
	return CLI_OK;
}

static int load(struct one_op *o, const struct source *source, kops_view *ret_view)
{
	kops_buffer *buffer; /* freed with the handle */

	int rc = source_load(source, o->cli->handle, &buffer, ret_view, o->cli->why);
	return rc < 0 ? cli_fail_kops(o->cli, rc, o->cli->why) : CLI_OK;
}

static int load_inputs(struct one_op *o)
{
	struct step *step = op_of(o);
	double start = cli_now_us();

	for (unsigned i = 0; i < step->op->n_inputs; i++) {
		/* One file given twice is read once. */
		bool again = i > 0 && strcmp(o->task->inputs[i]->path, o->task->inputs[0]->path) == 0;
		int rc = CLI_OK;
		if (again)
			step->in[i] = o->task->transposed[0] ? kops_transposed(step->in[0]) : step->in[0];
		else
			rc = load(o, o->task->inputs[i], &step->in[i]);
		if (rc != CLI_OK)
			return rc;
		if (o->task->transposed[i])
			step->in[i] = kops_transposed(step->in[i]);
	}
	o->times.read_us = cli_now_us() - start;
	return CLI_OK;
}

/* Keeps what the result's memory held before, for the check. */
static int keep_old(struct one_op *o, const kops_view *old)
{
	struct elements e = elements_of(old);

	o->old_copy = malloc(o->bytes ? o->bytes : 1);
	if (o->old_copy == NULL)
		return cli_fail(o->cli, CLI_FAILED, "out of memory for --check");
	memcpy(o->old_copy, kops_data(old->buffer), o->bytes);
	o->old = e;
	o->old.data = o->old_copy;
	op_of(o)->old = &o->old;
	return CLI_OK;
}

/* The result's memory: of `old` where there is one and it lies in C order. */
static int make_output(struct one_op *o)
{
	struct step *step = op_of(o);
	kops_dtype dtype = step->in[0].dtype;
	kops_buffer *buffer;
	kops_view old;
	int rc;

	if (o->task->old) {
		rc = load(o, o->task->old, &old);
		if (rc == CLI_OK && o->cli->flags.check)
			rc = keep_old(o, &old);
		if (rc != CLI_OK)
			return rc;
		step->out = old;
		if (!o->task->old->fortran)
			return CLI_OK;
	}
	rc = kops_alloc(o->cli->handle, o->bytes ? o->bytes : 8, KOPS_SHARED, NULL, &buffer);
	if (rc < 0)
		return cli_fail_kops(o->cli, rc, kops_error(o->cli->handle));
	step->out = kops_tensor(buffer, 0, dtype, o->rank, o->shape);
	if (o->task->old) {
		o->steps[1] = *step;
		o->steps[0] = step_of(operation_by_name("copy"));
		o->steps[0].in[0] = old;
		o->steps[0].out = o->steps[1].out;
		o->n_steps = 2;
	}
	return CLI_OK;
}

static int write_result(struct one_op *o, const struct elements *result)
{
	struct cli *cli = o->cli;
	double start = cli_now_us();

	if (o->sink && sink_write(o->sink, result, cli->why) < 0)
		return CLI_FAILED;
	if (o->sink == NULL && !cli->flags.json) {
		int rc = task_print(cli, "", result);
		if (rc != CLI_OK)
			return rc;
	}
	o->times.write_us = cli_now_us() - start;
	return CLI_OK;
}

static void json_operand(struct json *json, const char *path, const kops_view *v)
{
	json_object(json, NULL);
	json_text(json, "file", path);
	json_array(json, "shape");
	for (uint32_t d = 0; d < v->rank; d++)
		json_count(json, NULL, v->shape[d]);
	json_close_array(json);
	json_close_object(json);
}

static void report_json(struct one_op *o)
{
	struct step *step = op_of(o);
	struct json json;

	json_begin(&json, stdout, o->cli->command->name);
	json_bool(&json, "ok", !o->checked || check_passed(&o->check));
	json_text(&json, "dtype", element_type_name(step->out.dtype));
	json_array(&json, "inputs"); /* shapes as the op sees them, transposed or not */
	for (unsigned i = 0; i < step->op->n_inputs; i++)
		json_operand(&json, o->task->inputs[i]->path, &step->in[i]);
	json_close_array(&json);
	json_array(&json, "outputs");
	json_operand(&json, o->cli->flags.output, &step->out);
	json_close_array(&json);
	if (o->checked) {
		json_array(&json, "checks");
		check_json(&json, NULL, step->op->name, &o->check);
		json_close_array(&json);
	}
	task_json_end(o->cli, &json, o->job, &o->times);
	json_end(&json);
	o->cli->printed = true;
}

static int report(struct one_op *o)
{
	bool wrong = o->checked && !check_passed(&o->check);

	if (o->cli->flags.json) {
		report_json(o);
		int rc = cli_flush(o->cli);
		if (rc != CLI_OK)
			return rc;
	} else {
		if (!o->cli->flags.quiet)
			show_receipt(stderr, kops_job_receipt(o->job));
		if (o->checked && (wrong || !o->cli->flags.quiet))
			check_show(stderr, op_of(o)->op->name, &o->check);
	}
	if (wrong)
		return cli_fail(o->cli, CLI_CHECK_FAILED,
		                "the result is wrong and was not written; `kops-client ops` lists "
		                "other kernels, and --kernel picks one");
	return CLI_OK;
}

static int compute(struct one_op *o)
{
	struct cli *cli = o->cli;

	int rc = load_inputs(o);
	if (rc == CLI_OK)
		rc = make_output(o);
	if (rc == CLI_OK)
		rc = task_run(cli, o->steps, o->n_steps, cli->flags.device, &o->job, &o->times.job_us);
	if (rc == CLI_OK && cli->flags.check) {
		rc = task_check(cli, op_of(o), &o->check);
		o->checked = rc == CLI_OK;
	}
	if (rc != CLI_OK)
		return rc;
	struct elements result = elements_of(&op_of(o)->out);
	if (!o->checked || check_passed(&o->check))
		rc = write_result(o, &result);
	return rc != CLI_OK ? rc : report(o);
}

int task_one_op(struct cli *cli, const struct task *task)
{
	struct one_op o = {.cli = cli, .task = task, .steps = {step_of(task->op)}, .n_steps = 1};

	o.steps[0].set = cli->flags.op;
	o.steps[0].accumulates = task->old != NULL;

	int rc = plan(&o);
	if (rc != CLI_OK)
		return rc;
	if (cli->flags.output) {
		o.sink = sink_open(cli->flags.output, task->inputs[0]->dtype, cli->why);
		if (o.sink == NULL)
			return CLI_FAILED;
	}
	rc = cli_open(cli);
	if (rc == CLI_OK)
		rc = compute(&o);
	kops_job_free(o.job);
	free(o.old_copy);
	sink_close(o.sink);
	return rc;
}
