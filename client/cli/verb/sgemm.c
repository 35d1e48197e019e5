/* sgemm: gemm for f32. */
#include "verb/commands.h"
#include "verb/gemm.h"

static int run(struct cli *cli, int argc, char **argv)
{
	(void)argc;
	return verb_gemm_run(cli, argv, KOPS_F32);
}

static const struct option_row options[] = {GEMM_OPTIONS, OPTIONS_JOB, OPTIONS_END};

const struct command command_sgemm = {
    .name = "sgemm",
    .summary = "matrix product of two files of 32-bit floats",
    .usage = "[options] A B",
    .help = "C = alpha · op(A) · op(B) + beta · C, where op(A) is M×K and op(B) is K×N; the same as gemm\n"
            "--dtype f32. Files named .npy tell their shape. Any other file is raw row-major floats; its\n"
            "shape follows from its size and any one of -m, -n, -k, or from the other file. Two raw files of\n"
            "one square size need none.\n"
            "\n"
            "Without -o, a terminal gets shape, corner and statistics, a pipe the raw floats. The receipt\n"
            "(what ran, and where the time went) goes to stderr. With --json the matrix is not printed: add\n"
            "-o to have it.\n"
            "\n"
            "Examples:\n"
            "  kops-client sgemm a.bin b.bin -o c.bin\n"
            "  kops-client sgemm -m 1000 a.bin b.bin -o c.npy --check\n"
            "  kops-client sgemm --trans-b x.npy y.npy --json -o xy.npy\n"
            "  kops-client sgemm a.bin b.bin --kernel openblas --device cpu | my-program\n",
    .min_args = 2,
    .max_args = 2,
    .args_are = "two files, A and B",
    .options = options,
    .run = run,
};
