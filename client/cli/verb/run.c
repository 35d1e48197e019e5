/* run: runs several ops from a text file as one job. */
#include "files/dims.h"
#include "show.h"
#include "verb/commands.h"
#include "verb/pipeline.h"

static int open_source(struct cli *cli, const struct jobfile_value *line, struct source *s)
{
	const struct flags *said = &line->flags;

	if (source_open(line->path, s, cli->why) < 0)
		return CLI_FAILED;
	if (source_check_typed(s, said->dtype, "dtype=bf16 after the name", cli->why) < 0)
		return CLI_FAILED;
	if (s->npy && said->dtype && said->dtype != s->dtype)
		return cli_fail(cli, CLI_FAILED, "%s holds %s, not %s", line->path, element_type_name(s->dtype),
		                element_type_name(said->dtype));
	if (!s->npy)
		s->dtype = said->dtype ? said->dtype : KOPS_F32;
	if (dims_matrix(s, said->m, said->n, cli->why) < 0)
		return cli_fail(cli, CLI_FAILED, "%s (here: rows=, cols= after the name)", cli->why);
	return CLI_OK;
}

static int open_sources(struct pipeline *p)
{
	for (size_t i = 0; i < p->file->n_values; i++) {
		const struct jobfile_value *line = &p->file->values[i];
		int rc = line->path ? open_source(p->cli, line, &p->values[i].source) : CLI_OK;
		if (rc != CLI_OK)
			return job_fail_at(p, line->line, rc);
	}
	return CLI_OK;
}

static void json_value(struct json *json, const struct jobfile *file, const struct jobfile_value *line,
                       const struct value *v)
{
	const struct operation *op = line->output ? file->values[line->of].op : line->op;

	json_object(json, NULL);
	json_text(json, "name", line->name);
	json_text(json, "from", op ? op->name : line->path);
	json_text(json, "dtype", element_type_name(v->view.dtype));
	show_shape_json(json, &v->view);
	json_bool(json, "resident", !v->wanted);
	json_close_object(json);
}

static void describe(const struct pipeline *p, struct json *json)
{
	json_array(json, "values");
	for (size_t i = 0; i < p->file->n_values; i++)
		json_value(json, p->file, &p->file->values[i], &p->values[i]);
	json_close_array(json);
	json_array(json, "outputs");
	for (size_t i = 0; i < p->file->n_saves; i++) {
		json_object(json, NULL);
		json_text(json, "name", p->file->values[p->file->saves[i].value].name);
		json_text(json, "file", p->file->saves[i].path);
		json_close_object(json);
	}
	json_close_array(json);
}

static int has_ops(struct cli *cli, const struct jobfile *file)
{
	for (size_t i = 0; i < file->n_values; i++)
		if (file->values[i].op)
			return CLI_OK;
	return cli_fail(cli, CLI_FAILED, "%s: loads files and computes nothing", file->path);
}

static int run_file(struct cli *cli, const struct jobfile *file)
{
	struct pipeline *pipeline = pipeline_new(cli, file);
	int rc = CLI_FAILED;

	if (pipeline)
		rc = open_sources(pipeline);
	if (rc == CLI_OK)
		rc = pipeline_run(pipeline, describe);
	pipeline_free(pipeline);
	return rc;
}

static int run(struct cli *cli, char **argv)
{
	struct jobfile *file;

	if (jobfile_read(argv[0], &file, cli->why) < 0)
		return CLI_FAILED;
	int rc = has_ops(cli, file);
	if (rc == CLI_OK)
		rc = run_file(cli, file);
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
            "One load may be from -, standard input, and one save to -, standard output. Without a save line,\n"
            "the last value goes to stdout: shape, corner and statistics on a terminal, raw elements into a\n"
            "pipe, nothing with --json. --check compares every op in float64, given its\n"
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
    .args = VALUES_FILES,
    .options = options,
    .run = run,
};
