/* add: the sum of two files, with repetition of rows, columns and single elements. */
#include "files/dims.h"
#include "verb/commands.h"
#include "verb/rows.h"

/* A raw B is as large as A, or one row, column or element of it, and has its dtype. */
static int shape_second(struct cli *cli, const char *path, const struct source *a, struct source *ret)
{
	uint64_t columns = a->shape[a->rank - 1], rows = 1, r, c;

	if (ret->npy)
		return CLI_OK;
	for (uint32_t d = 0; d + 1 < a->rank; d++)
		rows *= a->shape[d];
	ret->dtype = a->dtype;
	if (dims_repeated(path, ret->bytes, kops_dtype_size(a->dtype), rows, columns, &r, &c, cli->why) < 0)
		return CLI_FAILED;
	source_set_matrix(ret, r, c);
	if (a->rank <= 2 || r == 1)
		return CLI_OK;
	/* The whole, or a column, of an array with more axes: the same axes. */
	ret->rank = a->rank;
	for (uint32_t d = 0; d < a->rank; d++)
		ret->shape[d] = a->shape[d];
	ret->shape[a->rank - 1] = c;
	return CLI_OK;
}

/* A raw A beside a .npy B has B's dtype. */
static int open_both(struct cli *cli, char **files, struct source *a, struct source *b)
{
	kops_dtype raw = verb_rows_dtype(cli);

	if (source_open(files[1], b, cli->why) < 0)
		return CLI_FAILED;
	if (b->npy && !cli->flags.dtype)
		raw = b->dtype;
	int rc = verb_rows_open(cli, files[0], raw, a);
	return rc == CLI_OK ? shape_second(cli, files[1], a, b) : rc;
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct task task = {.step = step_of(operation_by_name("add"))};
	struct source a = {.fd = -1}, b = {.fd = -1};

	(void)argc;
	int rc = open_both(cli, argv, &a, &b);
	task.step.kernel = cli->flags.kernel;
	task.inputs[0] = &a;
	task.inputs[1] = &b;
	if (rc == CLI_OK)
		rc = task_one_op(cli, &task);
	source_close(&a);
	source_close(&b);
	return rc;
}

static const struct option_row options[] = {OPTIONS_ROWS_COLUMNS, OPTION_DTYPE, OPTION_OUTPUT, OPTIONS_JOB,
                                            OPTIONS_END};

const struct command command_add = {
    .name = "add",
    .summary = "sum of two files; a row, a column or one element is repeated",
    .usage = "[options] A B",
    .help = "Y = A + B; f32, f16 and bf16. Shapes must be equal, or 1 where they differ: extents of 1 and\n"
            "missing leading ones are repeated, as in NumPy. Files named .npy tell their shape (1 to 4\n"
            "dimensions). Any other file is raw row-major elements: for A, -m or -n tells the shape, and a\n"
            "square one needs neither; B is as large as A, or one row, one column or one element of it (a row\n"
            "where both would fit).\n"
            "\n"
            "Without -o, a terminal gets shape, corner and statistics, a pipe the raw elements. The receipt\n"
            "goes to stderr. With --json the matrix is not printed: add -o to have it.\n"
            "\n"
            "Examples:\n"
            "  kops-client add a.npy b.npy -o sum.npy\n"
            "  kops-client add x.npy bias_row.npy -o y.npy --check\n"
            "  kops-client add -m 300 x.bin column.bin -o y.bin\n",
    .min_args = 2,
    .max_args = 2,
    .args_are = "two files, A and B",
    .options = options,
    .run = run,
};
