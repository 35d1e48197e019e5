/* kops-client: matrix jobs from files and scripts, through kopsd. */
#include "program.h"
#include "verb/commands.h"

int main(int argc, char **argv)
{
	const struct program program = {
	    .name = "kops-client",
	    .usage = "[--socket PATH] VERB [options] [files]",
	    .summary = "Matrix jobs on this machine's GPUs, or its CPU, through the daemon kopsd.",
	    .noun = "verb",
	    .example = "sgemm",
	    .checks = "--check failed",
	    .commands = commands_all(),
	    .moved = "bench",
	    .moved_to = "kops-bench",
	};

	return program_main(&program, argc, argv);
}
