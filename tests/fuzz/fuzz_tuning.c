/*
 * fuzz_tuning.c: libFuzzer target. Any bytes, taken as the daemon takes a tuning table: a table, none or a
 * sentence. Whatever it holds names rows that exist, and every class in it is found again by the text that
 * stands there.
 */
#include <stdlib.h>
#include <string.h>

#include "shape_class.h"
#include "tuning.h"

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel rows[] = {{.name = "a", .supports = takes_all},
                                     {.name = "bc", .supports = takes_all}};

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {rows, 2};

	(void)op;
	return &list;
}

static void check_class(const uint8_t *data, size_t len)
{
	char text[SHAPE_CLASS_TEXT_BYTES], again[SHAPE_CLASS_TEXT_BYTES];
	size_t n = len < sizeof text ? len : sizeof text - 1;
	struct shape_class class;

	memcpy(text, data, n);
	text[n] = '\0';
	if (shape_class_parse(text, &class) && strcmp(shape_class_format(&class, again), text) != 0)
		abort();
}

/* A product of some shape. */
static void look_up(const struct tuning *tuning, const uint8_t *data, size_t len)
{
	struct op_args args = {.op = op_by_name("gemm")};
	const struct tuned *tuned;

	for (unsigned i = 0; i < 3; i++) {
		struct view *v = &args.views[i];
		*v = (struct view){.dtype = KOPS_F32, .rank = 3, .shape = {1, 1, 1}};
		for (unsigned d = 1; d < 3; d++)
			v->shape[d] = len ? 1ull << data[(3 * i + d) % len] % 20 : 1;
		view_make_dense(v);
	}
	tuned = tuning_find(tuning, &args);
	if (!tuned)
		return;
	if (tuned->n < 1 || tuned->n > TUNED_ROWS_MAX || strlen(tuned->why) >= TUNED_WHY_BYTES)
		abort();
	for (unsigned i = 0; i < tuned->n; i++)
		if (tuned->rows[i] > 1)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct tuning_owner owner = {
	    .daemon = "kopsd 1", .description = "G, 1", .kernels = kernels_of};
	struct tuning *tuning = NULL;
	char why[TUNING_WHY_BYTES] = "";
	bool stale;
	int rc = tuning_parse((const char *)data, len, &owner, &tuning, &stale, why);

	if (rc < 0 && (tuning || !why[0] || strlen(why) >= sizeof why))
		abort();
	look_up(tuning, data, len);
	tuning_free(tuning);
	check_class(data, len);
	return 0;
}
