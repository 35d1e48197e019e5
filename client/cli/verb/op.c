#include "verb/op.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/dims.h"
#include "show.h"
#include "verb/pipeline.h"

/* Adds the other outputs that have files, in front of the op's value. Returns its index. */
static unsigned write_more(const struct flags *flags, const struct operation *op, unsigned n,
                           struct jobfile *job)
{
	unsigned first = n;

	for (unsigned i = op->n_inputs + 1; i <= op->n_inputs + op->n_more; i++) {
		if (!flags->operands[i])
			continue;
		job->values[n] = (struct jobfile_value){.output = i};
		job->saves[job->n_saves++] = (struct jobfile_save){.value = n++, .path = flags->operands[i]};
	}
	for (unsigned i = first; i < n; i++)
		job->values[i].of = n;
	return n;
}

/* Writes the job file that a verb's arguments stand for: loads, the op, and saves. */
static void write_job(const struct cli *cli, const struct operation *op, char **files, struct jobfile *job)
{
	const struct flags *flags = &cli->flags;
	unsigned required = operation_required(op), n = required;
	struct jobfile_value result = {.op = op,
	                               .has_old = flags->accumulate != NULL,
	                               .old = n,
	                               .over_old = flags->accumulate != NULL,
	                               .flags = *flags};

	for (unsigned i = 0; i < required; i++) {
		job->values[i].path = files[i];
		result.operands[i] = (struct jobfile_operand){.is_given = true, .value = i};
	}
	result.operands[0].transposed = flags->trans_a;
	result.operands[1].transposed = flags->trans_b;
	if (result.has_old)
		job->values[n++].path = flags->accumulate;
	for (unsigned i = required; i < op->n_inputs; i++) {
		if (!flags->operands[i])
			continue;
		result.operands[i] = (struct jobfile_operand){.is_given = true, .value = n};
		job->values[n++].path = flags->operands[i];
	}
	n = write_more(flags, op, n, job);
	job->values[n] = result;
	job->n_values = n + 1;
	if (flags->output)
		job->saves[job->n_saves++] = (struct jobfile_save){.value = n, .path = flags->output};
}

static int open_sources(struct pipeline *p, struct source **sources)
{
	for (size_t i = 0; p->file->values[i].path; i++) {
		sources[i] = &p->values[i].source;
		if (source_open(p->file->values[i].path, sources[i], p->cli->why) < 0)
			return CLI_FAILED;
	}
	return CLI_OK;
}

static int refuse_dtype(struct cli *cli, const struct source *s, const char *op)
{
	const char *asked = element_type_name(cli->flags.dtype), *holds = element_type_name(s->dtype);

	if (strcmp(cli->command->name, op) != 0)
		return cli_fail(cli, CLI_FAILED, "%s holds %s, and %s takes %s; `kops-client %s` takes %s",
		                s->path, holds, cli->command->name, asked, op, holds);
	return cli_fail(cli, CLI_FAILED, "--dtype %s is not what %s holds: %s", asked, s->path, holds);
}

/* The one type that a file may have, whatever the others have; 0: it may have theirs. */
static kops_dtype own_dtype(const struct jobfile_value *result, unsigned file)
{
	for (unsigned i = 0; i < result->op->n_inputs; i++)
		if (result->operands[i].is_given && result->operands[i].value == file)
			return operation_own_dtype(result->op, i);
	return 0;
}

/* Sets the dtype of raw files: --dtype, else that of a .npy beside them, else f32; or the only one that they
 * may have.
 */
static int settle_dtype(struct cli *cli, struct source *const *sources, const struct jobfile_value *result)
{
	const char *op = result->op->name;
	kops_dtype dtype = cli->flags.dtype, own;
	char how[64];

	snprintf(how, sizeof(how),
	         strcmp(cli->command->name, op) == 0 ? "--dtype bf16" : "kops-client %s --dtype bf16", op);
	for (unsigned i = 0; sources[i]; i++) {
		if (own_dtype(result, i))
			continue;
		if (source_check_typed(sources[i], cli->flags.dtype, how, cli->why) < 0)
			return CLI_FAILED;
		if (sources[i]->npy && cli->flags.dtype && sources[i]->dtype != dtype)
			return refuse_dtype(cli, sources[i], op);
		if (sources[i]->npy && dtype == 0)
			dtype = sources[i]->dtype;
	}
	for (unsigned i = 0; sources[i]; i++)
		if (!sources[i]->npy)
			sources[i]->dtype = (own = own_dtype(result, i)) ? own : dtype ? dtype : KOPS_F32;
	return CLI_OK;
}

/* Sets the shape of a raw operand: as large as A, or one row, column or element of it. */
static int fit_repeated(struct cli *cli, const struct source *a, struct source *b)
{
	uint64_t rows = 1, columns;

	if (b->npy)
		return CLI_OK;
	for (uint32_t d = 0; d + 1 < a->rank; d++)
		rows *= a->shape[d];
	if (dims_repeated(b, rows, a->shape[a->rank - 1], cli->why) < 0)
		return CLI_FAILED;
	if (a->rank <= 2 || b->shape[0] == 1)
		return CLI_OK;
	/* The whole array or a column of it has as many axes as A. */
	columns = b->shape[1];
	b->rank = a->rank;
	memcpy(b->shape, a->shape, sizeof(b->shape));
	b->shape[a->rank - 1] = columns;
	return CLI_OK;
}

static int fit_indices(struct cli *cli, struct source *s)
{
	return s->npy || dims_vector(s, cli->why) == 0 ? CLI_OK : CLI_FAILED;
}

/* Sets the shapes if the op has no rule of its own: -m and -n tell the first file's, and the others follow. */
static int fit(struct cli *cli, const struct operation *op, struct source *const *sources)
{
	int rc = dims_matrix(sources[0], cli->flags.m, cli->flags.n, cli->why) < 0 ? CLI_FAILED : CLI_OK;

	for (unsigned i = 1; sources[i] && rc == CLI_OK; i++)
		rc = operation_is_index(op, i) ? fit_indices(cli, sources[i])
		                               : fit_repeated(cli, sources[0], sources[i]);
	return rc;
}

/* As the op sees it, after transposing. */
static kops_view input_view(const struct source *s, const struct jobfile_operand *operand)
{
	kops_view view = kops_tensor(NULL, 0, s->dtype, s->rank, s->shape);

	return operand->transposed ? kops_transposed(view) : view;
}

/* Sets the shape of a raw file of an optional input: that of the result, or of some of its last axes. */
static int fit_optional(struct cli *cli, const struct jobfile_value *result, struct source *const *sources)
{
	const struct operation *op = result->op;
	struct step step = step_of(op);

	for (unsigned i = 0; i < op->n_inputs; i++) {
		struct source *s = result->operands[i].is_given ? sources[result->operands[i].value] : NULL;
		if (!s)
			continue;
		if (s->npy || i < operation_required(op)) {
			step.in[i] = input_view(s, &result->operands[i]);
			continue;
		}
		uint64_t elements = s->bytes / kops_dtype_size(s->dtype);
		if (s->bytes % kops_dtype_size(s->dtype) != 0 ||
		    step_fit_optional(&step, i, s->dtype, elements) < 0)
			return cli_fail(
			    cli, CLI_FAILED,
			    "%s has %" PRIu64
			    " bytes of %s, which matches neither the result nor some of its last axes",
			    s->path, s->bytes, element_type_name(s->dtype));
		s->rank = step.in[i].rank;
		memcpy(s->shape, step.in[i].shape, sizeof(s->shape));
	}
	return CLI_OK;
}

/* Lets a file that is given twice be read once. */
static void share(struct jobfile *job, struct source *const *sources)
{
	struct jobfile_value *result = &job->values[job->n_values - 1];
	struct source *a = sources[0], *b = sources[1];

	if (operation_required(result->op) < 2 || strcmp(a->path, b->path) != 0 || a->rank != b->rank ||
	    memcmp(a->shape, b->shape, a->rank * sizeof(a->shape[0])) != 0)
		return;
	result->operands[1].value = 0;
	source_close(b);
}

static void json_operand(struct json *json, const char *path, const kops_view *v)
{
	json_object(json, NULL);
	json_text(json, "file", path);
	show_shape_json(json, v);
	json_close_object(json);
}

static void describe(const struct pipeline *p, struct json *json)
{
	const struct jobfile_value *result = &p->file->values[p->file->n_values - 1];
	const struct step *step = &p->values[p->file->n_values - 1].step;

	json_text(json, "dtype", element_type_name(step->out.dtype));
	json_array(json, "inputs"); /* shapes as the op sees them, after transposing */
	for (unsigned i = 0; i < step->op->n_inputs; i++)
		if (step_has(step, i))
			json_operand(json, p->file->values[result->operands[i].value].path, &step->in[i]);
	json_close_array(json);
	json_array(json, "outputs");
	json_operand(json, p->cli->flags.output, &step->out);
	for (unsigned i = 0; i < step->op->n_more; i++)
		if (p->cli->flags.operands[step->op->n_inputs + 1 + i])
			json_operand(json, p->cli->flags.operands[step->op->n_inputs + 1 + i], &step->more[i]);
	json_close_array(json);
}

static int compute(struct pipeline *p, const struct operation *op, struct jobfile *job)
{
	struct source *sources[STEP_INPUTS_MAX + 2] = {NULL}, *first[STEP_INPUTS_MAX + 2] = {NULL};
	const struct jobfile_value *result = &job->values[job->n_values - 1];
	unsigned n = operation_required(op) + result->has_old;

	int rc = open_sources(p, sources);
	if (rc == CLI_OK)
		rc = settle_dtype(p->cli, sources, result);
	memcpy(first, sources, n * sizeof(sources[0])); /* optional ones' shapes follow from these */
	if (rc == CLI_OK)
		rc = op->fit ? op->fit(p->cli, first) : fit(p->cli, op, first);
	if (rc == CLI_OK)
		rc = fit_optional(p->cli, result, sources);
	if (rc != CLI_OK)
		return rc;
	share(job, sources);
	return pipeline_run(p, describe);
}

int verb_op_run(struct cli *cli, const struct operation *op, char **files)
{
	struct jobfile *job = calloc(1, sizeof(*job));
	struct pipeline *p = NULL;
	int rc = CLI_FAILED;

	const char *setting = cli->flags.accumulate ? NULL : operation_needs_old(op, &cli->flags.op);

	if (setting) {
		rc = cli_fail(cli, CLI_USAGE, "--%s needs the old %c%s: add -c FILE", setting,
		              toupper((unsigned char)op->accumulates[0]), op->accumulates + 1);
	} else if (job == NULL) {
		cli_fail(cli, CLI_FAILED, "out of memory");
	} else {
		write_job(cli, op, files, job);
		p = pipeline_new(cli, job);
		rc = p ? compute(p, op, job) : CLI_FAILED;
	}
	pipeline_free(p);
	jobfile_free(job);
	return rc;
}

/* ---- The commands ---- */

static const struct option_row of_matrix[] = {
    OPTION(NULL, 'm', "ROWS", count, m,
           "rows of a .bin file; follows from -n and the size, or the file is square"),
    OPTION(NULL, 'n', "COLS", count, n, "columns of a .bin file; follows from -m and the size"),
    OPTION_DTYPE,
    SETTINGS_END,
};
static const struct option_row of_every_op[] = {OPTION_OUTPUT, OPTIONS_JOB, OPTIONS_END};

#define HELP_ONE_FILE                                                                                          \
	"A file named .npy tells its shape (up to 4 dimensions). Any other file is a raw row-major matrix:\n"  \
	"-m or -n tells its shape, and a square one needs neither.\n"
#define HELP_FILES                                                                                             \
	"Files named .npy tell their shape (up to 4 dimensions). Any other file is raw row-major elements:\n"  \
	"for A, -m or -n tells the shape, and a square one needs neither; another file is as large as A, or\n" \
	"one row, one column or one element of it (a row where both would fit).\n"
#define HELP_OUTPUT                                                                                            \
	"\n"                                                                                                   \
	"A file named - is standard input; one may be. Without -o, a terminal gets shape, corner and\n"        \
	"statistics, a pipe the raw elements, as with -o -. The receipt (what ran, and where the time went)\n" \
	"goes to stderr. With --json the matrix is not printed: add -o FILE to have it.\n"                     \
	"\n"                                                                                                   \
	"Examples:\n"
#define HELP_BYTES 4096
#define ROWS_MAX   48

static int run(struct cli *cli, char **files)
{
	return verb_op_run(cli, operation_by_name(cli->command->name), files);
}

static struct option_row *add_rows(struct option_row *to, const struct option_row *rows)
{
	while (rows && options_is_row(rows))
		*to++ = *rows++;
	return to;
}

/* Writes "[options] A B" and "two files, A and B", by the op's description. */
static void name_files(const struct operation *op, char *usage, size_t usage_bytes, char *args_are,
                       size_t args_are_bytes)
{
	static const char *const counts[] = {"no", "one", "two", "three", "four", "five", "six", "seven"};
	unsigned n = operation_required(op);
	char names[64] = "";
	size_t used = 0;

	for (unsigned i = 0; i < n && used < sizeof(names); i++) {
		const char *between = i == 0 ? "" : i + 1 < n ? ", " : " and ";
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%c", between, 'A' + (int)i);
	}
	if (n == 1)
		snprintf(args_are, args_are_bytes, "one file");
	else
		snprintf(args_are, args_are_bytes, "%s files, %s", counts[n], names);
	snprintf(usage, usage_bytes, "[options] %s", n == 1 ? "X" : "A");
	for (unsigned i = 1; i < n; i++) {
		used = strlen(usage);
		snprintf(usage + used, usage_bytes - used, " %c", 'A' + (int)i);
	}
}

const struct command *verb_op_command(const struct operation *op, const struct verb *verb)
{
	static struct {
		struct command command;
		struct option_row options[ROWS_MAX];
		char help[HELP_BYTES], usage[64], args_are[64];
	} all[2 * OPERATIONS], *next = all;
	unsigned n = operation_required(op);
	struct option_row *rows = add_rows(next->options, verb->files ? verb->files : of_matrix);

	add_rows(add_rows(rows, op->settings), of_every_op);
	const char *of_files = verb->of_files ? verb->of_files : n == 1 ? HELP_ONE_FILE : HELP_FILES;

	snprintf(next->help, sizeof(next->help), "%s%s" HELP_OUTPUT "%s", verb->help, of_files, verb->examples);
	name_files(op, next->usage, sizeof(next->usage), next->args_are, sizeof(next->args_are));
	next->command = (struct command){
	    .name = verb->name,
	    .op = op->name,
	    .summary = verb->summary,
	    .usage = next->usage,
	    .help = next->help,
	    .min_args = (int)n,
	    .max_args = (int)n,
	    .args_are = next->args_are,
	    .args = VALUES_FILES,
	    .options = next->options,
	    .run = verb->run ? verb->run : run,
	};
	return &next++->command;
}
