/* transpose: swaps the last two axes. */
#include "op/operation.h"

static void align(struct elements *in, struct elements *y)
{
	struct elements turned = in[0];
	uint32_t last = in[0].rank - 1;

	(void)y;
	turned.shape[last] = in[0].shape[last - 1];
	turned.shape[last - 1] = in[0].shape[last];
	turned.strides[last] = in[0].strides[last - 1];
	turned.strides[last - 1] = in[0].strides[last];
	in[0] = turned;
}

static void cut(struct step *part, const struct bench_block *at)
{
	part->in[0] = step_slice(part->in[0], 0, at->column, at->columns);
	part->in[0] = step_slice(part->in[0], 1, at->row, at->rows);
}

const struct operation operation_transpose = {
    .name = "transpose",
    .n_inputs = 1,
    .verb = {.summary = "exchange the last two axes of a file",
             .help =
                 "Y[…, j, i] = X[…, i, j]; any dtype. (A product needs no transposed file: see --trans-a of "
                 "gemm.)\n",
             .examples = "  kops-client transpose a.npy -o at.npy\n"
                         "  kops-client transpose -m 300 a.bin -o at.bin\n"},
    .align = align,
    .bench = {.what = "transposition",
              .seed = "512,1024,2048,4096,8192,16384,16383x16381,23168",
              .random = {{32, 32}, {1 << 15, 1 << 15}, 1ull << 28},
              .random_cpu = {{32, 32}, {1 << 11, 1 << 11}, 1ull << 20},
              .cut = cut},
};
