/* gemm: C = alpha * op(A) * op(B) + beta * C, any dtype; sgemm is gemm for f32. */
#include "verb/gemm.h"

#include "files/dims.h"
#include "verb/task.h"

#define A 0
#define B 1
#define C 2

/* The dtype of raw files: --dtype, else that of a .npy beside them, else f32. Refuses what does not agree. */
static int settle_dtype(struct cli *cli, struct source sources[3], kops_dtype only)
{
	kops_dtype asked = only ? only : cli->flags.dtype, dtype = asked;

	for (int i = 0; i < 3 && dtype == 0; i++)
		if (sources[i].fd >= 0 && sources[i].npy)
			dtype = sources[i].dtype;
	if (dtype == 0)
		dtype = KOPS_F32;
	for (int i = 0; i < 3; i++) {
		struct source *s = &sources[i];
		if (!s->npy)
			s->dtype = dtype;
		if (s->fd < 0 || s->dtype == dtype)
			continue;
		if (only)
			return cli_fail(cli, CLI_FAILED,
			                "%s holds %s, and sgemm takes f32; `kops-client gemm` takes %s",
			                s->path, element_type_name(s->dtype), element_type_name(s->dtype));
		return cli_fail(
		    cli, CLI_FAILED, "%s holds %s where %s is needed%s; all operands have one dtype", s->path,
		    element_type_name(s->dtype), element_type_name(dtype), asked ? " (--dtype)" : "");
	}
	return CLI_OK;
}

/* A source as one corner of the product; the last two extents, transposed or not. */
static struct dims_file dims_of(const struct source *s, bool transposed)
{
	struct dims_file f = {.path = s->path, .raw = !s->npy, .bytes = s->bytes};

	if (s->npy && s->rank >= 2) {
		f.rows = s->shape[s->rank - (transposed ? 1 : 2)];
		f.cols = s->shape[s->rank - (transposed ? 2 : 1)];
	}
	return f;
}

static void set_raw_shape(struct source *s, uint64_t rows, uint64_t cols, bool transposed)
{
	if (!s->npy)
		source_set_matrix(s, transposed ? cols : rows, transposed ? rows : cols);
}

static int settle_shapes(struct cli *cli, struct source sources[3])
{
	const struct flags *flags = &cli->flags;
	const struct opt_count given[DIMS_AXES] = {
	    [DIMS_M] = flags->m, [DIMS_N] = flags->n, [DIMS_K] = flags->k};
	struct dims_file files[3] = {dims_of(&sources[A], flags->trans_a), dims_of(&sources[B], flags->trans_b),
	                             dims_of(&sources[C], false)};
	uint64_t d[DIMS_AXES];

	for (int i = 0; i < 3; i++)
		if (sources[i].npy && (sources[i].rank < 2 || sources[i].rank > 3))
			return cli_fail(cli, CLI_FAILED,
			                "%s has %u dimension%s; a product takes 2, or 3 with a batch in front",
			                sources[i].path, sources[i].rank, sources[i].rank == 1 ? "" : "s");
	if (dims_product(files, given, kops_dtype_size(sources[A].dtype), d, cli->why) < 0)
		return CLI_FAILED;
	set_raw_shape(&sources[A], d[DIMS_M], d[DIMS_K], flags->trans_a);
	set_raw_shape(&sources[B], d[DIMS_K], d[DIMS_N], flags->trans_b);
	set_raw_shape(&sources[C], d[DIMS_M], d[DIMS_N], false);
	return CLI_OK;
}

static int open_files(struct cli *cli, char **files, struct source sources[3])
{
	const char *paths[3] = {files[0], files[1], cli->flags.accumulate};

	for (int i = 0; i < 3; i++)
		if (paths[i] && source_open(paths[i], &sources[i], cli->why) < 0)
			return CLI_FAILED;
	return CLI_OK;
}

static int multiply(struct cli *cli, struct source sources[3])
{
	const struct flags *flags = &cli->flags;
	struct task task = {.op = &operation_gemm,
	                    .inputs = {&sources[A], &sources[B]},
	                    .transposed = {flags->trans_a, flags->trans_b},
	                    .old = flags->accumulate ? &sources[C] : NULL};

	return task_one_op(cli, &task);
}

/* only: the dtype that the verb takes, 0 for any. */
static int run_files(struct cli *cli, char **files, kops_dtype only)
{
	struct source sources[3] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};

	if (opt_or(cli->flags.op.beta, 0) != 0 && cli->flags.accumulate == NULL)
		return cli_fail(cli, CLI_USAGE, "--beta needs the old C: add -c FILE");
	int rc = open_files(cli, files, sources);
	if (rc == CLI_OK)
		rc = settle_dtype(cli, sources, only);
	if (rc == CLI_OK)
		rc = settle_shapes(cli, sources);
	if (rc == CLI_OK)
		rc = multiply(cli, sources);
	for (int i = 0; i < 3; i++)
		source_close(&sources[i]);
	return rc;
}

static int run(struct cli *cli, int argc, char **argv)
{
	(void)argc;
	return run_files(cli, argv, 0);
}

static int run_f32(struct cli *cli, int argc, char **argv)
{
	(void)argc;
	return run_files(cli, argv, KOPS_F32);
}

#define SIZES                                                                                                  \
	OPTION(NULL, 'm', "M", count, m, "rows of op(A) and C; for .bin files one of -m, -n, -k is enough"),   \
	    OPTION(NULL, 'n', "N", count, n, "columns of op(B) and C"),                                        \
	    OPTION(NULL, 'k', "K", count, k, "columns of op(A), rows of op(B)"),                               \
	    OPTION("trans-a", 0, NULL, switch, trans_a, "A is stored as K×M: use it transposed"),              \
	    OPTION("trans-b", 0, NULL, switch, trans_b, "B is stored as N×K: use it transposed"),              \
	    OPTION("accumulate", 'c', "FILE", text, accumulate, "add beta times this C")

static const struct option_row options[] = {SIZES,        GEMM_SETTINGS, OPTION_OUTPUT,
                                            OPTION_DTYPE, OPTIONS_JOB,   OPTIONS_END};
static const struct option_row options_f32[] = {SIZES, GEMM_SETTINGS, OPTION_OUTPUT, OPTIONS_JOB, OPTIONS_END};

const struct command command_gemm = {
    .name = "gemm",
    .summary = "matrix product of two files, any dtype",
    .usage = "[options] A B",
    .help = "C = alpha · op(A) · op(B) + beta · C, where op(A) is M×K and op(B) is K×N. Files named .npy tell\n"
            "shape and dtype (f32, f64, f16; 2 dimensions, or 3 with a batch in front). Any other file is raw\n"
            "row-major elements; its shape follows from its size and any one of -m, -n, -k, or from the other\n"
            "file. Two raw files of one square size need none. f16 and bf16 accumulate in f32; bf16 is for\n"
            "raw files.\n"
            "\n"
            "Without -o, a terminal gets shape, corner and statistics, a pipe the raw elements. The receipt\n"
            "(what ran, and where the time went) goes to stderr. With --json the matrix is not printed: add\n"
            "-o to have it.\n"
            "\n"
            "Examples:\n"
            "  kops-client gemm a.npy b.npy -o c.npy\n"
            "  kops-client gemm --dtype f64 -k 512 a.bin b.bin -o c.bin --check\n"
            "  kops-client gemm --trans-b queries.npy keys.npy --alpha 0.125 -o scores.npy\n"
            "  kops-client gemm a.npy b.npy -c c.npy --beta 0.5 -o c.npy\n",
    .min_args = 2,
    .max_args = 2,
    .args_are = "two files, A and B",
    .options = options,
    .run = run,
};

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
    .options = options_f32,
    .run = run_f32,
};
