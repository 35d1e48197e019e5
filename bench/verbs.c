#include "verbs.h"

#include "program.h"

const struct program *bench_program(void)
{
	static const struct command *all[3 + OPERATIONS + 1];
	static const struct program program = {
	    .name = "kops-bench",
	    .usage = "[--socket PATH] BENCHMARK [options] [shapes]",
	    .summary = "Measures round trips to the daemon kopsd, and the kernels of its ops.",
	    .noun = "benchmark",
	    .example = "gemm",
	    .checks = "a result is wrong",
	    .commands = all,
	};
	size_t n = 0;

	if (all[0])
		return &program;
	all[n++] = &command_ipc;
	all[n++] = &command_path;
	all[n++] = &command_beside;
	for (size_t i = 0; i < OPERATIONS; i++)
		all[n++] = bench_command(operation_at(i));
	return &program;
}
