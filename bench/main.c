/* kops-bench: measures kopsd from a client's side. */
#include "program.h"
#include "verbs.h"

static const struct command *const commands[] = {
    &command_ipc,
    &command_bench_gemm,
    &command_bench_softmax,
    &command_bench_transpose,
    &command_bench_add,
    &command_bench_copy,
    &command_bench_fma,
    &command_tune,
    NULL,
};

static const struct program program = {
    .name = "kops-bench",
    .usage = "[--socket PATH] BENCHMARK [options] [shapes]",
    .summary = "Measures round trips to the daemon kopsd, and the kernels of its ops.",
    .noun = "benchmark",
    .example = "gemm",
    .checks = "a result is wrong",
    .commands = commands,
};

int main(int argc, char **argv)
{
	return program_main(&program, argc, argv);
}
