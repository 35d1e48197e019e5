/* operations.c: the list of ops: those that have a file here, and the others by their descriptions. */
#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "op/described.h"

#define X(name) &operation_##name,
static const struct operation *const own[] = {
#include "own_ops.def"
};
#undef X

const struct operation *operation_at(size_t index)
{
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
		if (strcmp(own[i]->name, ops[index]->name) == 0)
			return own[i];
	return operation_described(index);
}

const struct operation *operation_by_name(const char *name)
{
	for (size_t i = 0; i < OPERATIONS; i++)
		if (strcmp(ops[i]->name, name) == 0)
			return operation_at(i);
	return NULL;
}

const char *operation_names(char *text, size_t room)
{
	size_t used = 0;

	for (size_t i = 0; i < OPERATIONS && used < room; i++) {
		const char *between = i == 0 ? "" : i + 1 < OPERATIONS ? ", " : " or ";
		used += (size_t)snprintf(text + used, room - used, "%s%s", between, ops[i]->name);
	}
	return text;
}
