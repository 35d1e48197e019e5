/* operations.c: the list of ops, made from their descriptions, with what the files here add. */
#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "op/described.h"

#define X(name) {#name, operation_##name},
static const struct {
	const char *op;
	void (*add)(struct operation *made);
} own[] = {
#include "own_ops.def"
    {NULL, NULL},
};
#undef X

const struct operation *operation_at(size_t index)
{
	static struct operation all[OPERATIONS];
	struct operation *op = &all[index];

	if (op->name)
		return op;
	operation_describe(index, op);
	for (size_t i = 0; own[i].op; i++)
		if (strcmp(own[i].op, op->name) == 0)
			own[i].add(op);
	return op;
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
