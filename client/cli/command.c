#include "commands.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* In the order of `kops-client -h`. */
const struct command *const command_rows[] = {
    &command_sgemm,   &command_gemm, &command_softmax, &command_transpose, &command_add,     &command_run,
    &command_devices, &command_ops,  &command_ping,    &command_stats,     &command_version, &command_bench,
    &command_tune,    NULL,
};

const struct command *command_by_name(const char *name)
{
	for (size_t i = 0; command_rows[i] != NULL; i++)
		if (strcmp(command_rows[i]->name, name) == 0)
			return command_rows[i];
	return NULL;
}

void command_help(const struct command *command)
{
	printf("Usage: kops-client %s %s\n%c%s.\n\n%s\nOptions:\n", command->name, command->usage,
	       toupper(command->summary[0]), command->summary + 1, command->help);
	options_help(command->options);
	puts("\nExit status: 0 done, 1 failed, 2 wrong usage, 3 cannot connect to kopsd, 4 timeout, 5 --check "
	     "failed.");
}
