/*
 * fuzz_learned.c: libFuzzer target. Reads any bytes as the daemon reads the file of what jobs showed: it makes
 * a table, or none, or a sentence. An accepted table is written and read again, and must be the same then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/learned_file.h"

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel kernels[] = {{.name = "a", .supports = takes_all},
                                        {.name = "bc", .supports = takes_all},
                                        {.name = "def", .supports = takes_all}};

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {kernels, 3};

	(void)op;
	return &list;
}

static unsigned no_rivals(const struct planner *planner, const struct op_args *args,
                          struct rival ret[RIVALS_MAX])
{
	(void)planner;
	(void)args;
	(void)ret;
	return 0;
}

static const struct learned_owner owner = {kernels_of, no_rivals, NULL};

/* Replaces log.c. */
void log_line(int level, const char *format, ...);
void log_line(int level, const char *format, ...)
{
	(void)level;
	(void)format;
}

static bool same(const struct learned_shape *a, const struct learned_shape *b)
{
	if (a->op != b->op || a->hash != b->hash || a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (a->candidates[i].kernel != b->candidates[i].kernel ||
		    a->candidates[i].trials != b->candidates[i].trials)
			return false;
	return true;
}

static void save_and_load(struct learned_file *file, struct learned *learned)
{
	struct learned_shape *shapes, *again;
	size_t n, n_again;
	char path[64], why[WHY_BYTES];
	struct learned *copy;

	if (learned_export(learned, &shapes, &n) < 0 || n == 0)
		return;
	snprintf(path, sizeof path, "/tmp/kops-fuzz-learned.%d", getpid());
	file->path = path;
	if (learned_file_save(file, shapes, n, why) < 0 || !(copy = learned_file_load(file, &owner)))
		abort();
	unlink(path);
	if (learned_export(copy, &again, &n_again) < 0 || n_again != n)
		abort();
	for (size_t i = 0, j; i < n; i++) {
		for (j = 0; j < n && !same(&shapes[i], &again[j]); j++)
			;
		if (j == n)
			abort();
	}
	learned_free(copy);
	free(shapes);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct learned_file file = {
	    .device = "gpu0", .daemon = "kopsd 1", .description = "G, 1", .kernels = kernels_of};
	struct learned *learned = learned_new(&owner);
	char why[WHY_BYTES] = "";
	int rc = learned_file_parse(&file, (const char *)data, len, learned, why);

	if (rc < 0 && (!why[0] || strlen(why) >= sizeof why))
		abort();
	if (rc == 1)
		save_and_load(&file, learned);
	learned_free(learned);
	return 0;
}
