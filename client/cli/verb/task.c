#include "verb/task.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "show.h"

#define TIMEOUT_MS_DEFAULT 30000
#define RETRY_US_MIN       200
#define RETRY_US_MAX       200000

/* ---- one job ---- */

/* Runs the job until it is done, refused for good, or out of time. */
static int run_patiently(struct cli *cli, kops_job *job)
{
	uint32_t timeout_ms = cli->flags.timeout_ms ? cli->flags.timeout_ms : TIMEOUT_MS_DEFAULT;
	double end = cli_now_us() + timeout_ms * 1e3;
	int rc;

	while ((rc = kops_run(job)) == KOPS_E_BUSY && cli_now_us() < end) {
		uint64_t us = kops_job_retry_after_us(job);
		usleep(us < RETRY_US_MIN ? RETRY_US_MIN : us > RETRY_US_MAX ? RETRY_US_MAX : (useconds_t)us);
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

int task_send(struct cli *cli, const struct step *steps, size_t n, const char *device, kops_job **ret_job)
{
	kops_job_options options = {.size = sizeof(options), .priority = cli->flags.priority, .device = device};
	kops_job *job;

	int rc = kops_job_new(cli->handle, &options, &job);
	if (rc < 0)
		return cli_fail_kops(cli, rc, kops_error(cli->handle));
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = steps[i].op->enqueue(job, &steps[i]);
	rc = rc < 0 ? cli_fail_kops(cli, rc, kops_error(cli->handle)) : run_patiently(cli, job);
	if (rc == CLI_OK)
		*ret_job = job;
	else
		kops_job_free(job);
	return rc;
}

int task_alloc(struct cli *cli, uint64_t bytes, unsigned flags, const char *device, kops_buffer **ret_buffer)
{
	int rc = kops_alloc(cli->handle, bytes ? bytes : 8, flags, device, ret_buffer);

	return rc < 0 ? cli_fail_kops(cli, rc, kops_error(cli->handle)) : CLI_OK;
}

/* ---- shapes, before anything is sent or read ---- */

int task_fail_at(const struct task *t, unsigned line, enum cli_exit code)
{
	if (t->file->path == NULL)
		return (int)code;
	return cli_fail(t->cli, code, "%s:%u: %s", t->file->path, line, t->cli->why);
}

/* What people call a value: by its name in a job file, else by its op or file. */
static const char *name_of(const struct jobfile_value *value)
{
	return value->name[0] ? value->name : value->op ? value->op->name : value->path;
}

/* The step of a line, with views that have buffers as far as the values have. */
static struct step step_for(const struct task *t, const struct jobfile_value *line)
{
	struct step step = step_of(line->op);

	for (unsigned i = 0; i < line->op->n_inputs; i++) {
		step.in[i] = t->values[line->operands[i].value].view;
		if (line->operands[i].transposed)
			step.in[i] = kops_transposed(step.in[i]);
	}
	step.set = line->flags.op;
	step.accumulates = line->has_old;
	return step;
}

static int infer(struct task *t, const struct jobfile_value *line, kops_view *ret)
{
	for (unsigned i = 0; i < line->op->n_inputs; i++)
		if (line->operands[i].transposed && t->values[line->operands[i].value].view.rank < 2)
			return cli_fail(t->cli, CLI_FAILED, "%s has one dimension and cannot be transposed",
			                name_of(&t->file->values[line->operands[i].value]));
	struct step step = step_for(t, line);
	if (step_shape(&step, t->cli->why) < 0)
		return CLI_FAILED;
	const kops_view *y = &step.out, *old = line->has_old ? &t->values[line->old].view : y;
	if (old->dtype != y->dtype || old->rank != y->rank ||
	    memcmp(old->shape, y->shape, y->rank * sizeof(y->shape[0])) != 0)
		return cli_fail(t->cli, CLI_FAILED, "%s is %s %s, but the product is %s %s",
		                name_of(&t->file->values[line->old]), show_shape(old->rank, old->shape).text,
		                element_type_name(old->dtype), show_shape(y->rank, y->shape).text,
		                element_type_name(y->dtype));
	*ret = *y;
	return CLI_OK;
}

static int plan(struct task *t)
{
	const struct jobfile *file = t->file;

	for (size_t i = 0; i < file->n_values; i++) {
		const struct jobfile_value *line = &file->values[i];
		struct value *v = &t->values[i];
		int rc = CLI_OK;
		if (line->op)
			rc = infer(t, line, &v->view);
		else
			v->view = kops_tensor(NULL, 0, v->source.dtype, v->source.rank, v->source.shape);
		if (rc != CLI_OK)
			return task_fail_at(t, line->line, rc);
		v->wanted = line->op == NULL || t->cli->flags.check;
	}
	for (size_t i = 0; i < file->n_saves; i++)
		t->values[file->saves[i].value].wanted = true;
	if (file->n_saves == 0)
		t->values[file->n_values - 1].wanted = true;
	return CLI_OK;
}

static int open_sinks(struct task *t)
{
	for (size_t i = 0; i < t->file->n_saves; i++) {
		const struct jobfile_save *save = &t->file->saves[i];
		t->sinks[i] = sink_open(save->path, t->values[save->value].view.dtype, t->cli->why);
		if (t->sinks[i] == NULL)
			return task_fail_at(t, save->line, CLI_FAILED);
	}
	return CLI_OK;
}

/* ---- memory ---- */

/* Values that stay on the device need to know which; then the whole job runs there. */
static int choose_device(struct task *t)
{
	struct cli *cli = t->cli;
	bool resident = false;

	for (size_t i = 0; i < t->file->n_values; i++)
		resident |= !t->values[i].wanted;
	t->device = cli->flags.device;
	if (!resident || t->device)
		return CLI_OK;
	int status = kops_query(cli->handle, &t->info);
	if (status < 0)
		return cli_fail_kops(cli, status, kops_error(cli->handle));
	if (t->info->n_devices > 0)
		t->device = kops_info_device(t->info, 0)->name;
	return CLI_OK;
}

static int allocate(struct task *t, struct value *v)
{
	unsigned flags = v->wanted ? KOPS_SHARED : KOPS_RESIDENT;
	uint64_t bytes = 0;

	element_bytes(v->view.dtype, v->view.rank, v->view.shape, &bytes);
	return task_alloc(t->cli, bytes, flags, v->wanted ? NULL : t->device, &v->view.buffer);
}

/* Memory for the result of a line, and its steps: what adds to c= starts from a copy. */
static int prepare_op(struct task *t, const struct jobfile_value *line, struct value *v)
{
	const struct value *old = line->has_old ? &t->values[line->old] : NULL;
	bool in_place = line->over_old && !old->source.fortran && !t->cli->flags.check;
	struct step *step = &v->step;
	int rc = CLI_OK;

	if (in_place)
		v->view = old->view;
	else
		rc = allocate(t, v);
	*step = step_for(t, line);
	step->out = v->view;
	if (old && !in_place)
		t->steps[t->n_steps++] = step_copy(old->view, v->view);
	if (old && t->cli->flags.check) {
		v->old = elements_of(&old->view);
		step->old = &v->old;
	}
	t->steps[t->n_steps++] = *step;
	return rc;
}

static int prepare(struct task *t)
{
	double start = cli_now_us();

	for (size_t i = 0; i < t->file->n_values; i++) {
		const struct jobfile_value *line = &t->file->values[i];
		struct value *v = &t->values[i];
		int rc = CLI_OK;
		if (line->op)
			rc = prepare_op(t, line, v);
		else if (v->source.fd >= 0) /* else it shares the memory of one with the same elements */
			rc = source_load(&v->source, t->cli, &v->view);
		if (rc != CLI_OK)
			return task_fail_at(t, line->line, rc);
	}
	t->read_us = cli_now_us() - start;
	return CLI_OK;
}

/* ---- results ---- */

static bool all_passed(const struct task *t)
{
	for (size_t i = 0; i < t->file->n_values; i++)
		if (!check_passed(&t->values[i].check))
			return false;
	return true;
}

static int check_all(struct task *t)
{
	for (size_t i = 0; i < t->file->n_values; i++)
		if (t->file->values[i].op && step_check(&t->values[i].step, &t->values[i].check) < 0)
			return cli_fail(t->cli, CLI_FAILED, "out of memory for --check");
	return CLI_OK;
}

/* On stdout, where nothing is saved: for a terminal, or raw. */
static int print(struct cli *cli, const char *name, const struct elements *e)
{
	if (isatty(STDOUT_FILENO)) {
		show_matrix(stdout, name, e);
		return cli_flush(cli);
	}
	return sink_write_raw(STDOUT_FILENO, "standard output", e) < 0 ? cli_fail_stdout(cli) : CLI_OK;
}

static int save_all(struct task *t)
{
	double start = cli_now_us();
	size_t last = t->file->n_values - 1;
	int rc = CLI_OK;

	for (size_t i = 0; i < t->file->n_saves; i++) {
		const struct jobfile_save *save = &t->file->saves[i];
		struct elements e = elements_of(&t->values[save->value].view);
		if (sink_write(t->sinks[i], &e, t->cli->why) < 0)
			return task_fail_at(t, save->line, CLI_FAILED);
	}
	if (t->file->n_saves == 0 && !t->cli->flags.json) {
		struct elements e = elements_of(&t->values[last].view);
		rc = print(t->cli, t->file->values[last].name, &e);
	}
	t->write_us = cli_now_us() - start;
	return rc;
}

static void json_times(struct json *json, const struct task *t)
{
	json_object(json, "client");
	json_us(json, "connect_us", t->cli->connect_us);
	json_us(json, "read_us", t->read_us);
	json_us(json, "job_us", t->job_us);
	json_us(json, "write_us", t->write_us);
	json_close_object(json);
}

static int report_json(struct task *t, void (*describe)(const struct task *task, struct json *json))
{
	const struct jobfile *file = t->file;
	struct json json;

	json_begin(&json, stdout, t->cli->command->name);
	json_bool(&json, "ok", all_passed(t));
	describe(t, &json);
	if (t->cli->flags.check) {
		json_array(&json, "checks");
		for (size_t i = 0; i < file->n_values; i++)
			if (file->values[i].op)
				check_json(&json, NULL, name_of(&file->values[i]), &t->values[i].check);
		json_close_array(&json);
	}
	json_times(&json, t);
	show_receipt_json(&json, kops_job_receipt(t->job));
	json_end(&json);
	t->cli->printed = true;
	return cli_flush(t->cli);
}

static int report_text(struct task *t)
{
	const struct jobfile *file = t->file;
	bool quiet = t->cli->flags.quiet;

	if (!quiet)
		show_receipt(stderr, kops_job_receipt(t->job));
	for (size_t i = 0; t->cli->flags.check && i < file->n_values; i++)
		if (file->values[i].op && (!quiet || !check_passed(&t->values[i].check)))
			check_show(stderr, name_of(&file->values[i]), &t->values[i].check);
	return CLI_OK;
}

static int execute(struct task *t)
{
	struct cli *cli = t->cli;

	int rc = choose_device(t);
	if (rc == CLI_OK)
		rc = prepare(t);
	double start = cli_now_us();
	if (rc == CLI_OK)
		rc = task_send(cli, t->steps, t->n_steps, t->device, &t->job);
	t->job_us = cli_now_us() - start;
	if (rc == CLI_OK && cli->flags.check)
		rc = check_all(t);
	if (rc == CLI_OK && all_passed(t))
		rc = save_all(t);
	return rc;
}

int task_run(struct task *t, void (*describe)(const struct task *task, struct json *json))
{
	int rc = plan(t);

	if (rc == CLI_OK)
		rc = open_sinks(t);
	if (rc == CLI_OK)
		rc = cli_open(t->cli);
	if (rc == CLI_OK)
		rc = execute(t);
	if (rc == CLI_OK)
		rc = t->cli->flags.json ? report_json(t, describe) : report_text(t);
	if (rc == CLI_OK && !all_passed(t))
		return cli_fail(t->cli, CLI_CHECK_FAILED,
		                "the result is wrong and nothing was written; `kops-client ops` lists other "
		                "kernels, and --kernel, or kernel= in a job file, picks one");
	return rc;
}

struct task *task_new(struct cli *cli, const struct jobfile *file)
{
	struct task *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		cli_fail(cli, CLI_FAILED, "out of memory");
		return NULL;
	}
	t->cli = cli;
	t->file = file;
	for (size_t i = 0; i < file->n_values; i++)
		t->values[i].source.fd = -1;
	return t;
}

void task_free(struct task *t)
{
	if (t == NULL)
		return;
	kops_job_free(t->job);
	if (t->info)
		kops_info_free(t->info);
	for (size_t i = 0; i < t->file->n_values; i++)
		source_close(&t->values[i].source);
	for (size_t i = 0; i < t->file->n_saves; i++)
		sink_close(t->sinks[i]);
	free(t);
}
