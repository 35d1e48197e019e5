#include "verb/commands.h"

#include "op/operation.h"
#include "verb/gemm.h"

static const struct command *const others[] = {&command_run,   &command_devices, &command_ops,    &command_ping,
                                               &command_stats, &command_tune,    &command_version};
#define N_OTHERS (sizeof(others) / sizeof(others[0]))

const struct command *const *commands_all(void)
{
	static const struct command *all[1 + OPERATIONS + N_OTHERS + 1];
	size_t n = 0;

	all[n++] = &command_sgemm;
	for (size_t i = 0; i < OPERATIONS; i++)
		if (operation_at(i)->verb)
			all[n++] = operation_at(i)->verb;
	for (size_t i = 0; i < N_OTHERS; i++)
		all[n++] = others[i];
	return all;
}
