#include "verbs.h"

#include "program.h"

static const struct command *const *list_commands(void)
{
	static const struct command *all[2 + OPERATIONS + 1];
	size_t n = 0;

	all[n++] = &command_ipc;
	all[n++] = &command_path;
	for (size_t i = 0; i < OPERATIONS; i++)
		all[n++] = bench_command(operation_at(i));
	return all;
}

const struct program *bench_program(void)
{
	static struct program program = {
	    .name = "kops-bench",
	    .usage = "[--socket PATH] BENCHMARK [options] [shapes]",
	    .summary = "Measures round trips to the daemon kopsd, and the kernels of its ops.",
	    .noun = "benchmark",
	    .example = "gemm",
	    .checks = "a result is wrong",
	};

	if (program.commands == NULL)
		program.commands = list_commands();
	return &program;
}
