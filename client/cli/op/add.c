/* add: element by element; an extent of 1 is repeated. */
#include <math.h>

#include "files/dims.h"
#include "op/operation.h"
#include "show.h"
#include "verb/matrix.h"

static void want_sum(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_roundoff(op->y->dtype), tiny = check_tiny_error(op->y->dtype);

	elements_row(op->a, row, 0, n, want);
	elements_row(op->b, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		want[j] += scratch[j];
		bound[j] = u * fabs(want[j]) + tiny;
	}
}

/* An operand with the shape of y: extents of 1 and missing ones get stride 0. */
static struct elements repeated(const struct elements *e, const struct elements *y)
{
	struct elements wide = *y;

	wide.data = e->data;
	wide.dtype = e->dtype;
	for (uint32_t d = 0; d < y->rank; d++) {
		uint32_t missing = y->rank - e->rank;
		bool repeats = d < missing || e->shape[d - missing] == 1;
		wide.strides[d] = repeats ? 0 : e->strides[d - missing];
	}
	return wide;
}

static int check(const struct step *step, const struct elements *in, const struct elements *y,
                 struct check *ret_check)
{
	struct elements a = repeated(&in[0], y), b = repeated(&in[1], y);
	struct check_by_row op = {.step = step, .a = &a, .b = &b, .y = y, .want = want_sum};

	return check_by_row(&op, ret_check);
}

static int shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *a = &step->in[0], *b = &step->in[1];
	uint32_t rank = a->rank > b->rank ? a->rank : b->rank;

	for (uint32_t d = 0; d < rank; d++) {
		uint64_t of_a = step_extent(a, d), of_b = step_extent(b, d);
		if (of_a != of_b && of_a != 1 && of_b != 1)
			return why_invalid(
			    why, "shapes do not fit together: %s and %s; extents must be equal or 1",
			    show_shape(a->rank, a->shape).text, show_shape(b->rank, b->shape).text);
		ret_shape[rank - 1 - d] = of_a == 1 ? of_b : of_a;
	}
	*ret_rank = rank;
	return 0;
}

static int enqueue(kops_job *job, const struct step *s)
{
	return kops_job_add(job, s->in[0], s->in[1], s->out, s->set.kernel);
}

/* ---- the verb ---- */

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
	kops_dtype raw = verb_matrix_dtype(cli);

	if (source_open(files[1], b, cli->why) < 0)
		return CLI_FAILED;
	if (b->npy && !cli->flags.dtype)
		raw = b->dtype;
	int rc = verb_matrix_open(cli, files[0], raw, a);
	return rc == CLI_OK ? shape_second(cli, files[1], a, b) : rc;
}

static int run(struct cli *cli, int argc, char **argv)
{
	struct source a = {.fd = -1}, b = {.fd = -1};
	struct task task = {.op = &operation_add, .inputs = {&a, &b}};

	(void)argc;
	int rc = open_both(cli, argv, &a, &b);
	if (rc == CLI_OK)
		rc = task_one_op(cli, &task);
	source_close(&a);
	source_close(&b);
	return rc;
}

static const struct option_row options[] = {OPTIONS_MATRIX()};

static const struct command verb = {
    .name = "add",
    .summary = "sum of two files; a row, a column or one element is repeated",
    .usage = "[options] A B",
    .help = "Y = A + B; f32, f16 and bf16. Shapes must be equal, or 1 where they differ: extents of 1 and\n"
            "missing leading ones are repeated, as in NumPy. Files named .npy tell their shape (1 to 4\n"
            "dimensions). Any other file is raw row-major elements. For A, -m or -n tells the shape; a square\n"
            "one needs neither. B is as large as A, or one row, one column or one element of it; a row where\n"
            "both would fit.\n" VERB_HELP_OUTPUT "  kops-client add a.npy b.npy -o sum.npy\n"
            "  kops-client add x.npy bias_row.npy -o y.npy --check\n"
            "  kops-client add -m 300 x.bin column.bin -o y.bin\n",
    .min_args = 2,
    .max_args = 2,
    .args_are = "two files, A and B",
    .options = options,
    .run = run,
};

const struct operation operation_add = {
    .name = "add",
    .n_inputs = 2,
    .dtypes = STEP_DTYPES_TO_F32,
    .verb = &verb,
    .shape = shape,
    .enqueue = enqueue,
    .check = check,
    .bench = {.what = "sums",
              .examples = "  kops-bench add 4096 --kernel all\n",
              .seed = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,262144x1024,349525x1024",
              .random = {{1, 32}, {1 << 15, 1 << 15}, 1ull << 27},
              .random_cpu = {{1, 32}, {1 << 11, 1 << 11}, 1ull << 20}},
};
