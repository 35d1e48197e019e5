/* run: several ops from a text file, as one job. */
#include <stdlib.h>
#include <string.h>

#include "files/dims.h"
#include "files/jobfile.h"
#include "show.h"
#include "verb/commands.h"
#include "verb/task.h"

/* What became of one line "name = …". */
struct value {
	struct source source; /* of load */
	uint32_t rank;
	uint64_t shape[KOPS_RANK_MAX];
	kops_dtype dtype;
	uint64_t bytes;
	bool wanted; /* on this side: saved, printed or checked */
	kops_view view;
	struct elements old; /* for the check of what adds to c= */
	size_t step;         /* its last one */
	struct check check;
};

struct script {
	struct cli *cli;
	const struct jobfile *file;
	struct value values[JOBFILE_VALUES_MAX];
	struct sink *sinks[JOBFILE_SAVES_MAX];
	struct step steps[2 * JOBFILE_VALUES_MAX];
	size_t n_steps;
	kops_info *info;    /* where device comes from, unless given */
	const char *device; /* for RESIDENT values; NULL while there are none */
	kops_job *job;
	struct task_times times;
};

/* An error of line `line`, with the sentence that is in cli->why already. */
static int fail_at(struct script *p, unsigned line, enum cli_exit code)
{
	return cli_fail(p->cli, code, "%s:%u: %s", p->file->path, line, p->cli->why);
}

/* ---- shapes, before anything is sent or read ---- */

static int open_source(struct script *p, const struct jobfile_value *line, struct value *v)
{
	struct source *s = &v->source;
	char *why = p->cli->why;
	const struct flags *said = &line->flags;
	uint64_t rows, cols;

	if (source_open(line->path, s, why) < 0)
		return CLI_FAILED;
	if (!s->npy) {
		s->dtype = said->dtype ? said->dtype : KOPS_F32;
		if (dims_matrix(line->path, s->bytes, kops_dtype_size(s->dtype), said->m, said->n, &rows, &cols,
		                why) < 0)
			return cli_fail(p->cli, CLI_FAILED, "%s (here: rows=, cols= after the name)", why);
		source_set_matrix(s, rows, cols);
	} else if (said->dtype && said->dtype != s->dtype) {
		return cli_fail(p->cli, CLI_FAILED, "%s holds %s, not %s", line->path,
		                element_type_name(s->dtype), element_type_name(said->dtype));
	} else if (said->m.set || said->n.set) {
		return cli_fail(p->cli, CLI_FAILED,
		                "%s tells its shape itself; rows= and cols= are for raw files", line->path);
	}
	v->dtype = s->dtype;
	v->rank = s->rank;
	memcpy(v->shape, s->shape, sizeof(v->shape));
	return CLI_OK;
}

/* The step of a line, with views that have buffers as far as the values have. */
static struct step step_for(struct script *p, const struct jobfile_value *line)
{
	struct step step = step_of(line->op);

	for (unsigned i = 0; i < line->op->n_inputs; i++) {
		step.in[i] = p->values[line->operands[i].value].view;
		if (line->operands[i].transposed)
			step.in[i] = kops_transposed(step.in[i]);
	}
	step.set = line->flags.op;
	step.accumulates = line->has_old;
	return step;
}

static int infer(struct script *p, const struct jobfile_value *line, struct value *v)
{
	char *why = p->cli->why;

	for (unsigned i = 0; i < line->op->n_inputs; i++)
		if (line->operands[i].transposed && p->values[line->operands[i].value].rank < 2)
			return cli_fail(p->cli, CLI_FAILED, "%s has one dimension and cannot be transposed",
			                p->file->values[line->operands[i].value].name);
	struct step step = step_for(p, line);
	if (step_shape(&step, &v->rank, v->shape, why) < 0)
		return CLI_FAILED;
	v->dtype = step.in[0].dtype;
	if (!line->has_old)
		return CLI_OK;
	const struct value *old = &p->values[line->old];
	if (old->dtype != v->dtype || old->rank != v->rank ||
	    memcmp(old->shape, v->shape, v->rank * sizeof(v->shape[0])) != 0)
		return cli_fail(p->cli, CLI_FAILED, "c= is %s %s, but the product is %s %s",
		                show_shape(old->rank, old->shape).text, element_type_name(old->dtype),
		                show_shape(v->rank, v->shape).text, element_type_name(v->dtype));
	return CLI_OK;
}

static int plan(struct script *p)
{
	const struct jobfile *file = p->file;

	for (size_t i = 0; i < file->n_values; i++) {
		const struct jobfile_value *line = &file->values[i];
		struct value *v = &p->values[i];
		int rc = line->op ? infer(p, line, v) : open_source(p, line, v);
		if (rc == CLI_OK && step_bytes(v->dtype, v->rank, v->shape, &v->bytes, p->cli->why) < 0)
			rc = CLI_FAILED;
		if (rc != CLI_OK)
			return fail_at(p, line->line, rc);
		v->view = kops_tensor(NULL, 0, v->dtype, v->rank, v->shape);
		v->wanted = line->op == NULL || p->cli->flags.check;
	}
	for (size_t i = 0; i < file->n_saves; i++)
		p->values[file->saves[i].value].wanted = true;
	if (file->n_saves == 0)
		p->values[file->n_values - 1].wanted = true;
	return CLI_OK;
}

static int open_sinks(struct script *p)
{
	for (size_t i = 0; i < p->file->n_saves; i++) {
		const struct jobfile_save *save = &p->file->saves[i];
		p->sinks[i] = sink_open(save->path, p->values[save->value].dtype, p->cli->why);
		if (p->sinks[i] == NULL)
			return fail_at(p, save->line, CLI_FAILED);
	}
	return CLI_OK;
}

/* ---- memory ---- */

/* Values that stay on the device need to know which; then the whole job runs there. */
static int choose_device(struct script *p)
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

static int allocate(struct script *p, struct value *v)
{
	kops_buffer *buffer; /* freed with the handle */
	unsigned flags = v->wanted ? KOPS_SHARED : KOPS_RESIDENT;

	int status =
	    kops_alloc(p->cli->handle, v->bytes ? v->bytes : 8, flags, v->wanted ? NULL : p->device, &buffer);
	if (status < 0)
		return cli_fail_kops(p->cli, status, kops_error(p->cli->handle));
	v->view = kops_tensor(buffer, 0, v->dtype, v->rank, v->shape);
	return CLI_OK;
}

static void add_step(struct script *p, const struct jobfile_value *line, struct value *v)
{
	struct step step = step_for(p, line);

	step.out = v->view;
	if (line->has_old) { /* values never change: the product starts from a copy */
		struct step copy = step_of(operation_by_name("copy"));
		copy.in[0] = p->values[line->old].view;
		copy.out = v->view;
		p->steps[p->n_steps++] = copy;
		if (p->cli->flags.check)
			v->old = elements_of(&copy.in[0]);
		step.old = &v->old;
	}
	v->step = p->n_steps;
	p->steps[p->n_steps++] = step;
}

static int prepare(struct script *p)
{
	double start = cli_now_us();

	for (size_t i = 0; i < p->file->n_values; i++) {
		const struct jobfile_value *line = &p->file->values[i];
		struct value *v = &p->values[i];
		kops_buffer *buffer;
		int rc = CLI_OK;
		if (line->op) {
			rc = allocate(p, v);
			if (rc == CLI_OK)
				add_step(p, line, v);
		} else {
			int status = source_load(&v->source, p->cli->handle, &buffer, &v->view, p->cli->why);
			if (status < 0)
				rc = cli_fail_kops(p->cli, status, p->cli->why);
		}
		if (rc != CLI_OK)
			return fail_at(p, line->line, rc);
	}
	p->times.read_us = cli_now_us() - start;
	return CLI_OK;
}

/* ---- results ---- */

static bool all_passed(const struct script *p)
{
	for (size_t i = 0; i < p->file->n_values; i++)
		if (!check_passed(&p->values[i].check))
			return false;
	return true;
}

static int check_all(struct script *p)
{
	for (size_t i = 0; i < p->file->n_values; i++) {
		struct value *v = &p->values[i];
		if (p->file->values[i].op == NULL)
			continue;
		int rc = task_check(p->cli, &p->steps[v->step], &v->check);
		if (rc != CLI_OK)
			return rc;
	}
	return CLI_OK;
}

static int save_all(struct script *p)
{
	double start = cli_now_us();
	int rc = CLI_OK;

	for (size_t i = 0; i < p->file->n_saves; i++) {
		const struct jobfile_save *save = &p->file->saves[i];
		struct elements e = elements_of(&p->values[save->value].view);
		if (sink_write(p->sinks[i], &e, p->cli->why) < 0)
			return fail_at(p, save->line, CLI_FAILED);
	}
	if (p->file->n_saves == 0 && !p->cli->flags.json) {
		size_t last = p->file->n_values - 1;
		struct elements e = elements_of(&p->values[last].view);
		rc = task_print(p->cli, p->file->values[last].name, &e);
	}
	p->times.write_us = cli_now_us() - start;
	return rc;
}

static void json_value(struct json *json, const struct jobfile_value *line, const struct value *v)
{
	json_object(json, NULL);
	json_text(json, "name", line->name);
	json_text(json, "from", line->op ? line->op->name : line->path);
	json_text(json, "dtype", element_type_name(v->dtype));
	json_array(json, "shape");
	for (uint32_t d = 0; d < v->rank; d++)
		json_count(json, NULL, v->shape[d]);
	json_close_array(json);
	json_bool(json, "resident", !v->wanted);
	json_close_object(json);
}

static void report_json(struct script *p)
{
	struct json json;

	json_begin(&json, stdout, p->cli->command->name);
	json_bool(&json, "ok", all_passed(p));
	json_array(&json, "values");
	for (size_t i = 0; i < p->file->n_values; i++)
		json_value(&json, &p->file->values[i], &p->values[i]);
	json_close_array(&json);
	json_array(&json, "outputs");
	for (size_t i = 0; i < p->file->n_saves; i++) {
		json_object(&json, NULL);
		json_text(&json, "name", p->file->values[p->file->saves[i].value].name);
		json_text(&json, "file", p->file->saves[i].path);
		json_close_object(&json);
	}
	json_close_array(&json);
	if (p->cli->flags.check) {
		json_array(&json, "checks");
		for (size_t i = 0; i < p->file->n_values; i++)
			if (p->file->values[i].op)
				check_json(&json, NULL, p->file->values[i].name, &p->values[i].check);
		json_close_array(&json);
	}
	task_json_end(p->cli, &json, p->job, &p->times);
	json_end(&json);
	p->cli->printed = true;
}

static void report_text(struct script *p)
{
	if (!p->cli->flags.quiet)
		show_receipt(stderr, kops_job_receipt(p->job));
	for (size_t i = 0; p->cli->flags.check && i < p->file->n_values; i++)
		if (p->file->values[i].op && (!p->cli->flags.quiet || !check_passed(&p->values[i].check)))
			check_show(stderr, p->file->values[i].name, &p->values[i].check);
}

static int report(struct script *p)
{
	int rc = CLI_OK;

	if (p->cli->flags.json) {
		report_json(p);
		rc = cli_flush(p->cli);
	} else {
		report_text(p);
	}
	if (rc == CLI_OK && !all_passed(p))
		return cli_fail(p->cli, CLI_CHECK_FAILED, "the result is wrong and nothing was written");
	return rc;
}

static int execute(struct script *p)
{
	struct cli *cli = p->cli;

	int rc = cli_open(cli);
	if (rc == CLI_OK)
		rc = choose_device(p);
	if (rc == CLI_OK)
		rc = prepare(p);
	if (rc == CLI_OK && p->n_steps > 0)
		rc = task_run(cli, p->steps, p->n_steps, p->device, &p->job, &p->times.job_us);
	if (rc == CLI_OK && cli->flags.check)
		rc = check_all(p);
	if (rc == CLI_OK && all_passed(p))
		rc = save_all(p);
	return rc == CLI_OK ? report(p) : rc;
}

static struct script *script_new(struct cli *cli, const struct jobfile *file)
{
	struct script *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->cli = cli;
	p->file = file;
	for (size_t i = 0; i < file->n_values; i++)
		p->values[i].source.fd = -1;
	return p;
}

static void script_free(struct script *p)
{
	kops_job_free(p->job);
	if (p->info)
		kops_info_free(p->info);
	for (size_t i = 0; i < p->file->n_values; i++)
		source_close(&p->values[i].source);
	for (size_t i = 0; i < p->file->n_saves; i++)
		sink_close(p->sinks[i]);
	free(p);
}

static int has_ops(struct cli *cli, const struct jobfile *file)
{
	for (size_t i = 0; i < file->n_values; i++)
		if (file->values[i].op)
			return CLI_OK;
	return cli_fail(cli, CLI_FAILED, "%s: loads files and computes nothing", file->path);
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct jobfile *file;
	struct script *p;

	(void)argc;
	if (jobfile_read(argv[0], &file, cli->why) < 0)
		return CLI_FAILED;
	int rc = has_ops(cli, file);
	if (rc != CLI_OK)
		goto out_file;
	p = script_new(cli, file);
	if (p == NULL) {
		rc = cli_fail(cli, CLI_FAILED, "out of memory");
		goto out_file;
	}
	rc = plan(p);
	if (rc == CLI_OK)
		rc = open_sinks(p);
	if (rc == CLI_OK)
		rc = execute(p);
	script_free(p);
out_file:
	jobfile_free(file);
	return rc;
}

static const struct option_row options[] = {OPTIONS_RUN, OPTIONS_END};

const struct command command_run = {
    .name = "run",
    .summary = "run several ops, written in a small text file, as one job",
    .usage = "[options] FILE",
    .help = "Each line of FILE (- for standard input) makes a value or saves one; # starts a comment:\n"
            "  x = load images.npy             a .npy file; for raw elements: load x.bin cols=64 dtype=f32\n"
            "  t = load known.npy\n"
            "  y = load labels.npy\n"
            "  s = gemm x t' alpha=100         t' is t transposed, at no cost\n"
            "  p = softmax s                   scale=X, log=yes\n"
            "  c = gemm p y                    c=NAME beta=X add a matrix; precision=P\n"
            "  save c classes.npy\n"
            "`kops-client ops` lists the ops. Settings are the options of the op's verb, without dashes, and\n"
            "kernel=NAME. A name has one value, and no line changes the value of another. Values neither\n"
            "saved nor loaded never leave the device. The job is one message and runs in order on one device:\n"
            "--device, else kopsd's first.\n"
            "\n"
            "Without a save line, the last value goes to stdout: shape, corner and statistics on a terminal,\n"
            "raw elements into a pipe, nothing with --json. --check compares every op in float64, given its\n"
            "actual inputs, and keeps all values in shared memory to do so. File names are relative to the\n"
            "working directory.\n"
            "\n"
            "Examples:\n"
            "  kops-client run classify.job\n"
            "  kops-client run classify.job --device gpu0 --json\n"
            "  printf 's = load s.npy\\np = softmax s\\n' | kops-client run - --check\n",
    .min_args = 1,
    .max_args = 1,
    .args_are = "one job file",
    .options = options,
    .run = run,
};
