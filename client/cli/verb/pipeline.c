#include "verb/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "show.h"
#include "verb/stream.h"

/* ---- shapes, before anything is sent or read ---- */

/* Returns what people call a value: its name in a job file, else its op or file. */
static const char *name_of(const struct jobfile_value *value)
{
	return value->name[0] ? value->name : value->op ? value->op->name : value->path;
}

static int infer(struct pipeline *p, const struct jobfile_value *line, kops_view *ret)
{
	for (unsigned i = 0; i < line->op->n_inputs; i++)
		if (line->operands[i].transposed && p->values[line->operands[i].value].view.rank < 2)
			return cli_fail(p->cli, CLI_FAILED, "%s has one dimension and cannot be transposed",
			                name_of(&p->file->values[line->operands[i].value]));
	struct step step = job_step(p, line);
	if (step_shape(&step, p->cli->why) < 0)
		return CLI_FAILED;
	const kops_view *y = &step.out, *old = line->has_old ? &p->values[line->old].view : y;
	if (old->dtype != y->dtype || old->rank != y->rank ||
	    memcmp(old->shape, y->shape, y->rank * sizeof(y->shape[0])) != 0)
		return cli_fail(p->cli, CLI_FAILED, "%s is %s %s, but the result is %s %s",
		                name_of(&p->file->values[line->old]), show_shape(old->rank, old->shape).text,
		                element_type_name(old->dtype), show_shape(y->rank, y->shape).text,
		                element_type_name(y->dtype));
	*ret = *y;
	return CLI_OK;
}

/* Sets the shapes of the other outputs of the value with this index. */
static int infer_more(struct pipeline *p, size_t of)
{
	const struct jobfile_value *line = &p->file->values[of];
	struct step step = job_step(p, line);

	for (size_t i = 0; i < of; i++) {
		unsigned output = p->file->values[i].output;
		if (output == 0 || p->file->values[i].of != of)
			continue;
		if (step_more(&step, output, p->cli->why) < 0)
			return CLI_FAILED;
		p->values[i].view = step.more[output - line->op->n_inputs - 1];
	}
	return CLI_OK;
}

static int plan(struct pipeline *p)
{
	const struct jobfile *file = p->file;

	for (size_t i = 0; i < file->n_values; i++) {
		const struct jobfile_value *line = &file->values[i];
		struct value *v = &p->values[i];
		int rc = CLI_OK;
		if (line->op)
			rc = infer(p, line, &v->view);
		if (line->op && rc == CLI_OK)
			rc = infer_more(p, i);
		if (line->op == NULL && line->output == 0)
			v->view = kops_tensor(NULL, 0, v->source.dtype, v->source.rank, v->source.shape);
		if (rc != CLI_OK)
			return job_fail_at(p, line->line, rc);
		v->wanted = (line->op == NULL && line->output == 0) || p->cli->flags.check;
	}
	for (size_t i = 0; i < file->n_saves; i++)
		p->values[file->saves[i].value].wanted = true;
	p->values[file->n_values - 1].wanted |= p->shows;
	return CLI_OK;
}

/* Opens the path of -o or of a line "save". Returns NULL with the sentence in cli->why. */
static struct sink *open_sink(struct pipeline *p, const char *path)
{
	const struct flags *flags = &p->cli->flags;

	bool standard = strcmp(path, "-") == 0;

	if (standard && !flags->json && isatty(STDOUT_FILENO)) {
		why_invalid(p->cli->why, "binary elements are not written to a terminal: send them to a file "
		                         "or a pipe, or leave out -o - and --npy to see the matrix");
		return NULL;
	}
	if (!standard || (!flags->json && !p->uses_stdout++))
		return sink_open(path, flags->npy, p->cli->why);
	why_invalid(p->cli->why, "standard output takes one matrix, or what --json prints; save to a file");
	return NULL;
}

static int open_sinks(struct pipeline *p)
{
	const struct flags *flags = &p->cli->flags;

	/* A terminal gets its description. */
	if (p->shows && !flags->json && (flags->npy || !isatty(STDOUT_FILENO))) {
		p->saves[p->n_saves++] =
		    (struct jobfile_save){.value = (unsigned)p->file->n_values - 1, .path = "-"};
		p->is_piped = true;
	}
	for (size_t i = 0; i < p->n_saves; i++) {
		p->sinks[i] = open_sink(p, p->saves[i].path);
		if (p->sinks[i] == NULL)
			return job_fail_at(p, p->saves[i].line, CLI_FAILED);
	}
	return CLI_OK;
}

/* ---- memory ---- */

/* Chooses a device if values stay on it; the whole job then runs there. */
static int choose_device(struct pipeline *p)
{
	struct cli *cli = p->cli;
	bool resident = false;

	for (size_t i = 0; i < p->file->n_values; i++)
		resident |= !p->values[i].wanted;
	p->device = cli->flags.device;
	if (!resident || p->device)
		return CLI_OK;
	int status = kops_query(cli->handle, &p->info);
	if (status < 0)
		return cli_fail_kops(cli, status, kops_error(cli->handle));
	if (p->info->n_devices > 0)
		p->device = kops_info_device(p->info, 0)->name;
	return CLI_OK;
}

static int allocate(struct pipeline *p, struct value *v)
{
	unsigned flags = v->wanted ? KOPS_SHARED : KOPS_RESIDENT;
	uint64_t bytes = 0;

	element_bytes(v->view.dtype, v->view.rank, v->view.shape, &bytes);
	return job_alloc(p->cli, bytes, flags, v->wanted ? NULL : p->device, &v->view.buffer);
}

/* Allocates the other outputs of a value. */
static int prepare_more(struct pipeline *p, struct value *v)
{
	size_t of = (size_t)(v - p->values);
	int rc = CLI_OK;

	for (size_t i = 0; i < of && rc == CLI_OK; i++) {
		const struct jobfile_value *line = &p->file->values[i];
		if (line->output == 0 || line->of != of)
			continue;
		rc = allocate(p, &p->values[i]);
		v->step.more[line->output - v->step.op->n_inputs - 1] = p->values[i].view;
	}
	return rc;
}

/* Adds the outputs that the check of an op needs, if nobody asked for them. */
static int prepare_for_check(struct pipeline *p, struct step *step)
{
	int rc = CLI_OK;

	for (unsigned i = 0; i < step->op->n_more && rc == CLI_OK; i++) {
		kops_view *more = &step->more[i];
		uint64_t bytes = 0;

		if (more->buffer || !operation_checks_with(step->op, step->op->n_inputs + 1 + i))
			continue;
		if (step_more(step, step->op->n_inputs + 1 + i, p->cli->why) < 0)
			return CLI_FAILED;
		element_bytes(more->dtype, more->rank, more->shape, &bytes);
		rc = job_alloc(p->cli, bytes, KOPS_SHARED, NULL, &more->buffer);
	}
	return rc;
}

/* Allocates the result of a line and adds its steps. An op that adds to c= starts from a copy. */
static int prepare_op(struct pipeline *p, const struct jobfile_value *line, struct value *v)
{
	const struct value *old = line->has_old ? &p->values[line->old] : NULL;
	bool in_place = job_overwrites(p, line);
	struct step *step = &v->step;
	int rc = CLI_OK;

	if (in_place)
		v->view = old->view;
	else
		rc = allocate(p, v);
	*step = job_step(p, line);
	step->out = v->view;
	if (rc == CLI_OK)
		rc = prepare_more(p, v);
	if (rc == CLI_OK && p->cli->flags.check)
		rc = prepare_for_check(p, step);
	if (old && !in_place)
		p->steps[p->n_steps++] = step_copy(old->view, v->view);
	if (old && p->cli->flags.check) {
		v->old = elements_of(&old->view);
		step->old = &v->old;
	}
	p->steps[p->n_steps++] = *step;
	return rc;
}

static int prepare(struct pipeline *p)
{
	double start = cli_now_us();

	for (size_t i = 0; i < p->file->n_values; i++) {
		const struct jobfile_value *line = &p->file->values[i];
		struct value *v = &p->values[i];
		int rc = CLI_OK;
		if (line->op)
			rc = prepare_op(p, line, v);
		else if (v->source.fd >= 0) /* else it shares the memory of a source with the same elements */
			rc = source_load(&v->source, p->cli, &v->view);
		if (rc != CLI_OK)
			return job_fail_at(p, line->line, rc);
	}
	p->read_us = cli_now_us() - start;
	return CLI_OK;
}

/* ---- results ---- */

static bool all_passed(const struct pipeline *p)
{
	for (size_t i = 0; i < p->file->n_values; i++)
		if (!check_passed(&p->values[i].check))
			return false;
	return true;
}

static int check_all(struct pipeline *p)
{
	for (size_t i = 0; i < p->file->n_values; i++)
		if (p->file->values[i].op && step_check(&p->values[i].step, &p->values[i].check) < 0)
			return cli_fail(p->cli, CLI_FAILED, "out of memory for --check");
	return CLI_OK;
}

static int save_all(struct pipeline *p)
{
	double start = cli_now_us();

	for (size_t i = 0; i < p->n_saves; i++) {
		struct elements e = elements_of(&p->values[p->saves[i].value].view);
		if (sink_write(p->sinks[i], &e, p->cli->why) == 0)
			continue;
		p->cli->silent =
		    p->is_piped && i + 1 == p->n_saves && errno == EPIPE; /* its reader has seen enough */
		return job_fail_at(p, p->saves[i].line, CLI_FAILED);
	}
	if (p->shows && !p->is_piped && !p->cli->flags.json) {
		size_t last = p->file->n_values - 1;
		struct elements e = elements_of(&p->values[last].view);
		show_matrix(stdout, p->file->values[last].name, &e);
	}
	p->write_us = cli_now_us() - start;
	return CLI_OK;
}

static void report_json(struct pipeline *p,
                        void (*describe)(const struct pipeline *pipeline, struct json *json))
{
	const struct jobfile *file = p->file;
	struct json json;

	json_begin(&json, stdout, p->cli->command->name);
	json_bool(&json, "ok", all_passed(p));
	describe(p, &json);
	if (p->cli->flags.check) {
		json_array(&json, "checks");
		for (size_t i = 0; i < file->n_values; i++)
			if (file->values[i].op)
				check_json(&json, NULL, name_of(&file->values[i]), &p->values[i].check);
		json_close_array(&json);
	}
	json_object(&json, "client");
	json_us(&json, "connect_us", p->cli->connect_us);
	json_us(&json, "read_us", p->read_us);
	json_us(&json, "job_us", p->job_us);
	json_us(&json, "write_us", p->write_us);
	json_close_object(&json);
	receipt_json(&json, &p->receipt);
	json_end(&json);
	p->cli->printed = true;
}

static void report_text(struct pipeline *p)
{
	const struct jobfile *file = p->file;
	bool quiet = p->cli->flags.quiet;

	if (!quiet)
		receipt_show(stderr, &p->receipt);
	for (size_t i = 0; p->cli->flags.check && i < file->n_values; i++)
		if (file->values[i].op && (!quiet || !check_passed(&p->values[i].check)))
			check_show(stderr, name_of(&file->values[i]), &p->values[i].check);
}

/* Everything at once. */
static int execute_whole(struct pipeline *p)
{
	struct cli *cli = p->cli;
	int rc = prepare(p);
	double start = cli_now_us();
	if (rc == CLI_OK)
		rc = job_send(cli, p->steps, p->n_steps, p->device, &p->job);
	p->job_us = cli_now_us() - start;
	if (rc == CLI_OK)
		receipt_add(&p->receipt, kops_job_receipt(p->job));
	if (rc == CLI_OK && cli->flags.check)
		rc = check_all(p);
	if (rc == CLI_OK && all_passed(p))
		rc = save_all(p);
	return rc;
}

static int execute(struct pipeline *p)
{
	struct stream *stream;
	int rc = choose_device(p);

	if (rc != CLI_OK)
		return rc;
	stream = stream_new(p);
	rc = stream ? stream_run(stream) : execute_whole(p);
	stream_free(stream);
	return rc;
}

int pipeline_run(struct pipeline *p, void (*describe)(const struct pipeline *pipeline, struct json *json))
{
	int rc = plan(p);

	if (rc == CLI_OK)
		rc = open_sinks(p);
	if (rc == CLI_OK)
		rc = cli_open(p->cli);
	if (rc == CLI_OK)
		rc = execute(p);
	if (rc == CLI_OK && p->cli->flags.json)
		report_json(p, describe);
	else if (rc == CLI_OK)
		report_text(p);
	if (rc == CLI_OK && !all_passed(p))
		return cli_fail(p->cli, CLI_CHECK_FAILED,
		                "the result is wrong and nothing was written; `kops-client ops` lists other "
		                "kernels, and --kernel, or kernel= in a job file, picks one");
	return rc;
}

/* Returns true if the last value is shown: nothing is saved, or by a verb only other outputs of its op. */
static bool shows_last(const struct jobfile *file)
{
	for (size_t i = 0; i < file->n_saves; i++)
		if (file->path || file->saves[i].value + 1 == file->n_values)
			return false;
	return true;
}

struct pipeline *pipeline_new(struct cli *cli, const struct jobfile *file)
{
	struct pipeline *p = calloc(1, sizeof(*p));

	if (p == NULL) {
		cli_fail(cli, CLI_FAILED, "out of memory");
		return NULL;
	}
	p->cli = cli;
	p->file = file;
	memcpy(p->saves, file->saves, sizeof(file->saves));
	p->n_saves = file->n_saves;
	p->shows = shows_last(file);
	for (size_t i = 0; i < file->n_values; i++)
		p->values[i].source.fd = -1;
	return p;
}

void pipeline_free(struct pipeline *p)
{
	if (p == NULL)
		return;
	kops_job_free(p->job);
	if (p->info)
		kops_info_free(p->info);
	for (size_t i = 0; i < p->file->n_values; i++)
		source_close(&p->values[i].source);
	for (size_t i = 0; i < p->n_saves; i++)
		sink_close(p->sinks[i]);
	free(p);
}
