/* add: element by element; an extent of 1 is repeated. */
#include <math.h>

#include "op/operation.h"

static void want_sum(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_type(op->y->dtype)->roundoff, tiny = check_tiny_error(op->y->dtype);

	elements_row(op->a, row, 0, n, want);
	elements_row(op->b, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		want[j] += scratch[j];
		bound[j] = u * fabs(want[j]) + tiny; /* of f64 want[j] is the result itself */
	}
}

/* An operand gets the shape of y: extents of 1 and missing ones have stride 0. */
static void repeat(struct elements *e, const struct elements *y)
{
	struct elements wide = *y;
	uint32_t missing = y->rank - e->rank;

	wide.data = e->data;
	for (uint32_t d = 0; d < y->rank; d++)
		wide.strides[d] = d < missing || e->shape[d - missing] == 1 ? 0 : e->strides[d - missing];
	*e = wide;
}

static void align(struct elements *in, struct elements *y)
{
	repeat(&in[0], y);
	repeat(&in[1], y);
}

const struct operation operation_add = {
    .name = "add",
    .n_inputs = 2,
    .verb =
        {.summary = "sum of two files; a row, a column or one element is repeated",
         .help =
             "Y = A + B; f32, f64, f16 and bf16. Shapes must be equal, or 1 where they differ: extents of 1 "
             "and\n"
             "missing leading ones are repeated, as in NumPy. Files named .npy tell their shape (1 to 4\n"
             "dimensions). Any other file is raw row-major elements: for A, -m or -n tells the shape, and a\n"
             "square one needs neither; B is as large as A, or one row, one column or one element of it (a "
             "row\n"
             "where both would fit).\n",
         .examples = "  kops-client add a.npy b.npy -o sum.npy\n"
                     "  kops-client add x.npy bias_row.npy -o y.npy --check\n"
                     "  kops-client add -m 300 x.bin column.bin -o y.bin\n"},
    .want = want_sum,
    .align = align,
    .bench = {.what = "sums",
              .seed = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,262144x1024,349525x1024",
              .random = {{1, 32}, {1 << 15, 1 << 15}, 1ull << 27},
              .random_cpu = {{1, 32}, {1 << 11, 1 << 11}, 1ull << 20}},
};
