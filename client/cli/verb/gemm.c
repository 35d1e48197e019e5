/* gemm: C = alpha * op(A) * op(B) + beta * C, any dtype; sgemm is gemm for f32. */
#include "verb/op.h"

#include "files/dims.h"

int gemm_fit(struct cli *cli, struct source *const *sources)
{
	const struct flags *flags = &cli->flags;
	const struct opt_count given[DIMS_AXES] = {
	    [DIMS_M] = flags->m, [DIMS_N] = flags->n, [DIMS_K] = flags->k};
	const bool transposed[3] = {flags->trans_a, flags->trans_b, false};

	return dims_product(sources, transposed, given, cli->why) < 0 ? CLI_FAILED : CLI_OK;
}

static int run_f32(struct cli *cli, char **argv)
{
	cli->flags.dtype = KOPS_F32;
	return verb_op_as(cli, &operation_gemm, argv);
}

#define SIZES                                                                                                  \
	OPTION(NULL, 'm', "M", count, m, "rows of op(A) and C; for .bin files one of -m, -n, -k is enough"),   \
	    OPTION(NULL, 'n', "N", count, n, "columns of op(B) and C"),                                        \
	    OPTION(NULL, 'k', "K", count, k, "columns of op(A), rows of op(B)"),                               \
	    OPTION("trans-a", 0, NULL, switch, trans_a, "A is stored as K×M: use it transposed"),              \
	    OPTION("trans-b", 0, NULL, switch, trans_b, "B is stored as N×K: use it transposed"),              \
	    OPTION("accumulate", 'c', "FILE", file, accumulate, "add beta times this C")

static const struct option_row options[] = {SIZES,        GEMM_SETTINGS, OPTION_OUTPUT,
                                            OPTION_DTYPE, OPTIONS_JOB,   OPTIONS_END};
static const struct option_row options_f32[] = {SIZES, GEMM_SETTINGS, OPTION_OUTPUT, OPTIONS_JOB, OPTIONS_END};

#define HELP                                                                                                      \
	"C = alpha · op(A) · op(B) + beta · C, where op(A) is M×K and op(B) is K×N. Files named .npy tell\n" \
	"their shape: 2 dimensions, or 3 with a batch in front. Any other file is raw row-major elements;\n"      \
	"its shape follows from its size and any one of -m, -n, -k, or from the other file. Two raw files\n"      \
	"of one square size need none.\n"

const struct command command_gemm = {
    .name = "gemm",
    .summary = "matrix product of two files, any dtype",
    VERB_OF_TWO_FILES,
    .help =
        HELP "A .npy has f32, f64 or f16, raw files also bf16; it and f16 accumulate in f32.\n" VERB_HELP_OUTPUT
             "  kops-client gemm a.npy b.npy -o c.npy\n"
             "  kops-client gemm --dtype f64 -k 512 a.bin b.bin -o c.bin --check\n"
             "  kops-client gemm --trans-b queries.npy keys.npy --alpha 0.125 -o scores.npy\n"
             "  kops-client gemm a.npy b.npy -c c.npy --beta 0.5 -o c.npy\n",
    .options = options,
};

const struct command command_sgemm = {
    .name = "sgemm",
    .summary = "matrix product of two files of 32-bit floats",
    TAKES_TWO_FILES,
    .help = HELP "It is gemm --dtype f32.\n" VERB_HELP_OUTPUT "  kops-client sgemm a.bin b.bin -o c.bin\n"
                 "  kops-client sgemm -m 1000 a.bin b.bin -o c.npy --check\n"
                 "  kops-client sgemm --trans-b x.npy y.npy --json -o xy.npy\n"
                 "  my-source | kops-client sgemm - b.bin -o - | my-program\n",
    .options = options_f32,
    .run = run_f32,
};
