/* gemm.c: what the description of gemm does not say: raw files of matrices, and a check faster than its
 * reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "elementwise/unary_function.h"
#include "files/dims.h"
#include "gemm/gemm.h"
#include "op/gemm_complex.h"
#include "verb/op.h"

#define PRODUCT_BUDGET (1ull << 30) /* multiply-adds: 1024³, about a second */
#define CHUNK          32           /* rows of C at a time */
#define DEPTH          32           /* of K */
#define WIDTH          1024         /* of N */
#define SLOPE          1.13         /* steepest of any activation */
#define ACTIVATION     6            /* roundings of f32, or f64, that one may add to its argument */

/* ---- the check ---- */

/* y = activation(alpha * a * b + beta * old + bias); old is NULL when beta is 0. */
struct product {
	const struct elements *a, *b, *old, *y;
	struct elements bias; /* with y's shape; rank 0: absent */
	struct gemm_params params;
};

/* Storage of one check. */
struct tiles {
	double a[CHUNK][DEPTH];
	double b[DEPTH][WIDTH];
	double sum[CHUNK][WIDTH];
	double a_square[CHUNK], b_square[WIDTH];
	double old[WIDTH], bias[WIDTH], got[WIDTH];
	uint64_t rows[CHUNK];
};

uint64_t gemm_operand_row(const struct elements *operand, const struct elements *y, uint64_t row,
                          uint64_t in_matrix)
{
	uint64_t batch = row / y->shape[y->rank - 2];
	uint64_t batches = elements_rows(operand) / operand->shape[operand->rank - 2];

	return (batches > 1 ? batch : 0) * operand->shape[operand->rank - 2] + in_matrix;
}

static void load_a(struct tiles *t, const struct product *p, unsigned n_rows, uint64_t k, uint64_t depth)
{
	uint64_t m = p->y->shape[p->y->rank - 2];

	for (unsigned r = 0; r < n_rows; r++) {
		elements_row(p->a, gemm_operand_row(p->a, p->y, t->rows[r], t->rows[r] % m), k, depth, t->a[r]);
		for (uint64_t i = 0; i < depth; i++)
			t->a_square[r] += t->a[r][i] * t->a[r][i];
	}
}

static void load_b(struct tiles *t, const struct product *p, uint64_t k, uint64_t depth, uint64_t j,
                   uint64_t width)
{
	for (uint64_t i = 0; i < depth; i++) {
		elements_row(p->b, gemm_operand_row(p->b, p->y, t->rows[0], k + i), j, width, t->b[i]);
		for (uint64_t c = 0; c < width; c++)
			t->b_square[c] += t->b[i][c] * t->b[i][c];
	}
}

static void multiply(struct tiles *t, unsigned n_rows, uint64_t depth, uint64_t width)
{
	for (unsigned r = 0; r < n_rows; r++) {
		double *restrict sum = t->sum[r];
		uint64_t i = 0;
		for (; i + 4 <= depth; i += 4) {
			const double *b0 = t->b[i], *b1 = t->b[i + 1], *b2 = t->b[i + 2], *b3 = t->b[i + 3];
			double a0 = t->a[r][i], a1 = t->a[r][i + 1], a2 = t->a[r][i + 2], a3 = t->a[r][i + 3];
			for (uint64_t c = 0; c < width; c++)
				sum[c] += (a0 * b0[c] + a1 * b1[c]) + (a2 * b2[c] + a3 * b3[c]);
		}
		for (; i < depth; i++)
			for (uint64_t c = 0; c < width; c++)
				sum[c] += t->a[r][i] * t->b[i][c];
	}
}

/* Relative error that the kernel may put on each product a·b. */
static double product_roundoff(const struct product *p)
{
	bool rounds = p->y->dtype == KOPS_F32;

	if (rounds && p->params.precision == KOPS_PRECISION_TF32)
		return 2 * 0x1p-11;
	if (rounds && p->params.precision == KOPS_PRECISION_BF16)
		return 2 * 0x1p-8;
	return 0;
}

/* How far results may lie off, by their parts. */
struct roundings {
	double per_norm;   /* of ‖a_i‖·‖b_j‖ */
	double per_term;   /* of what is added, and of the result */
	double activation; /* of its argument */
	double slope, tiny;
};

static struct roundings roundings_of(const struct product *p, uint64_t depth)
{
	kops_dtype dtype = p->y->dtype;
	bool has_activation = p->params.activation != UNARY_NONE;
	/* Small types accumulate in f32; f64 is checked by f64, which may be as wrong itself. */
	double accumulate =
	    element_type(dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32)->roundoff * (dtype == KOPS_F64 ? 2 : 1);

	return (struct roundings){
	    .per_norm = fabs(p->params.alpha) * (accumulate * check_sum_growth(depth) + product_roundoff(p)),
	    .per_term = 2 * element_type(dtype)->roundoff,
	    .activation = has_activation ? ACTIVATION * accumulate : 0,
	    .slope = has_activation ? SLOPE : 1,
	    .tiny = 2 * check_tiny_error(dtype),
	};
}

/* Of what is not there, zeros. */
static void load_terms(struct tiles *t, const struct product *p, uint64_t row, uint64_t j, uint64_t width)
{
	elements_row(p->y, row, j, width, t->got);
	memset(t->old, 0, sizeof(t->old));
	memset(t->bias, 0, sizeof(t->bias));
	if (p->old)
		elements_row(p->old, row, j, width, t->old);
	if (p->bias.rank > 0)
		elements_row(&p->bias, row, j, width, t->bias);
}

/* Row r of the tile. */
static void compare_row(const struct tiles *t, const struct product *p, unsigned r, uint64_t j, uint64_t width,
                        const struct roundings *off, struct check *c)
{
	double a_norm = sqrt(t->a_square[r]), alpha = p->params.alpha;

	for (uint64_t i = 0; i < width; i++) {
		double old = p->old ? p->params.beta * t->old[i] : 0;
		double sum = (alpha == 0 ? 0 : alpha * t->sum[r][i]) + old + t->bias[i];
		double terms = fabs(sum) + fabs(old) + fabs(t->bias[i]);
		double bound = off->slope * (off->per_norm * a_norm * sqrt(t->b_square[i]) +
		                             off->per_term * terms + off->tiny) +
		               off->activation * fabs(sum);
		check_compare(c, t->rows[r], j + i, t->got[i], unary_of(p->params.activation, sum), bound,
		              element_type(p->y->dtype)->largest);
	}
}

static void compare_tile(struct tiles *t, const struct product *p, unsigned n_rows, uint64_t j, uint64_t width,
                         uint64_t depth, struct check *c)
{
	struct roundings off = roundings_of(p, depth);

	for (unsigned r = 0; r < n_rows; r++) {
		load_terms(t, p, t->rows[r], j, width);
		compare_row(t, p, r, j, width, &off, c);
	}
}

/* The rows in t->rows, all of one batch, against N columns. */
static void check_rows(struct tiles *t, const struct product *p, unsigned n_rows, struct check *c)
{
	uint64_t columns = elements_columns(p->y), depth = elements_columns(p->a);

	for (uint64_t j = 0; j < columns; j += WIDTH) {
		uint64_t width = columns - j < WIDTH ? columns - j : WIDTH;
		memset(t->sum, 0, sizeof(t->sum));
		memset(t->a_square, 0, sizeof(t->a_square));
		memset(t->b_square, 0, sizeof(t->b_square));
		for (uint64_t k = 0; k < depth; k += DEPTH) {
			uint64_t d = depth - k < DEPTH ? depth - k : DEPTH;
			load_a(t, p, n_rows, k, d);
			load_b(t, p, k, d, j, width);
			multiply(t, n_rows, d, width);
		}
		compare_tile(t, p, n_rows, j, width, depth, c);
	}
}

/* Repeats it to y's shape, as NumPy does. */
static struct elements spread(const struct elements *bias, const struct elements *y)
{
	struct elements e = *y;

	e.data = bias->data;
	memset(e.strides, 0, sizeof(e.strides));
	for (uint32_t d = 0; d < bias->rank; d++)
		if (bias->shape[d] != 1)
			e.strides[y->rank - bias->rank + d] = bias->strides[d];
	return e;
}

static struct product product_of(const struct step *step, const struct elements *in, const struct elements *y)
{
	struct op_args args = {.op = op_by_name(step->op->name)};
	struct product p = {.a = &in[GEMM_A], .b = &in[GEMM_B], .y = y};

	step_set_attributes(step, &args);
	p.params = args.params.gemm;
	if (p.params.beta != 0)
		p.old = step->old;
	if (in[GEMM_BIAS].rank > 0)
		p.bias = spread(&in[GEMM_BIAS], y);
	return p;
}

static int check(const struct step *step, const struct elements *in, const struct elements *y,
                 struct check *ret_check)
{
	if (dtype_kind(y->dtype) == DTYPE_COMPLEX)
		return gemm_check_complex(step, in, y, ret_check);
	struct product p = product_of(step, in, y);
	uint64_t m = y->shape[y->rank - 2];
	double row_cost = (double)elements_columns(y) * (double)elements_columns(p.a);
	struct tiles *t = malloc(sizeof(*t));
	struct check c = {.elements = elements_count(y), .us = cli_now_us()};
	struct check_sample s = check_sample_rows(elements_rows(y), row_cost, (double)PRODUCT_BUDGET, &c);
	unsigned n = 0;

	if (t == NULL)
		return KOPS_E_NOMEM;
	for (uint64_t i = 0; i < s.n; i++) {
		uint64_t row = check_sample_row(&s, i);
		bool full = n == CHUNK || (n > 0 && row / m != t->rows[0] / m);
		if (full)
			check_rows(t, &p, n, &c);
		n = full ? 0 : n;
		t->rows[n++] = row;
	}
	if (n > 0)
		check_rows(t, &p, n, &c);
	free(t);
	c.us = cli_now_us() - c.us;
	*ret_check = c;
	return 0;
}

/* ---- files ---- */

static int fit(struct cli *cli, struct source *const *sources)
{
	const struct flags *flags = &cli->flags;
	const struct opt_count given[DIMS_AXES] = {
	    [DIMS_M] = flags->m, [DIMS_N] = flags->n, [DIMS_K] = flags->k};
	const bool transposed[3] = {flags->trans_a, flags->trans_b, false};

	return dims_product(sources, transposed, given, cli->why) < 0 ? CLI_FAILED : CLI_OK;
}

#define SIZES                                                                                                  \
	OPTION(NULL, 'm', "M", count, m, "rows of op(A) and C; for .bin files one of -m, -n, -k is enough"),   \
	    OPTION(NULL, 'n', "N", count, n, "columns of op(B) and C"),                                        \
	    OPTION(NULL, 'k', "K", count, k, "columns of op(A), rows of op(B)"),                               \
	    OPTION("trans-a", 0, NULL, switch, trans_a, "A is stored as K×M: use it transposed"),              \
	    OPTION("trans-b", 0, NULL, switch, trans_b, "B is stored as N×K: use it transposed"), SETTINGS_END

static const struct option_row files[] = {OPTION_DTYPE, SIZES}, files_f32[] = {SIZES};

#define OF_FILES                                                                                               \
	"op(A), which is M×K, is A, or A transposed by --trans-a; op(B), which is K×N, likewise. Files "     \
	"named\n"                                                                                              \
	".npy tell their shape. Any other file is raw row-major elements; its shape follows from its size\n"   \
	"and any one of -m, -n, -k, or from the other file. Two raw files of one square size need none.\n"     \
	"A raw bias has the shape of C, or of its last axes.\n"

/* ---- the verbs ---- */

static int run_f32(struct cli *cli, char **paths)
{
	cli->flags.dtype = KOPS_F32;
	return verb_op_run(cli, operation_by_name(cli->command->op), paths);
}

static struct verb sgemm = {
    .name = "sgemm",
    .summary = "matrix product of two files of 32-bit floats",
    .of_files = OF_FILES "It is gemm --dtype f32.\n",
    .examples = "  kops-client sgemm a.bin b.bin -o c.bin\n"
                "  kops-client sgemm -m 1000 a.bin b.bin -o c.npy --check\n"
                "  kops-client sgemm --trans-b x.npy y.npy --json -o xy.npy\n"
                "  my-source | kops-client sgemm - b.bin -o - | my-program\n",
    .files = files_f32,
    .run = run_f32,
};

void operation_gemm(struct operation *made)
{
	sgemm.help = made->verb.help;
	made->other_verb = &sgemm;
	made->verb.of_files =
	    OF_FILES "A .npy of bf16, as NumPy saves ml_dtypes.bfloat16, does not tell that: --dtype bf16.\n";
	made->verb.examples = "  kops-client gemm a.npy b.npy -o c.npy\n"
	                      "  kops-client gemm --dtype f64 -k 512 a.bin b.bin -o c.bin --check\n"
	                      "  kops-client gemm --trans-b queries.npy keys.npy --alpha 0.125 -o scores.npy\n"
	                      "  kops-client gemm a.npy b.npy -c c.npy --beta 0.5 -o c.npy\n"
	                      "  kops-client gemm --trans-a --conj_a psi.npy psi.npy -o overlap.npy\n"
	                      "  kops-client gemm x.npy w.npy --bias bias.npy --activation gelu -o y.npy\n";
	made->verb.files = files;
	made->transposes = true;
	made->fit = fit;
	made->check = check;
}
