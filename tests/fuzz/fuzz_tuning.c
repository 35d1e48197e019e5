/*
 * fuzz_tuning.c: libFuzzer target. Any bytes, taken as the daemon takes a tuning table: a table, none or a
 * sentence. A product whose shape comes from the same bytes has a class that is found again by its text, and
 * what a table holds for it names rows that exist.
 */
#include <stdlib.h>
#include <string.h>

#include "device/shape_class.h"
#include "device/tuning.h"

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

/* Its text is what a client writes into the table. */
static void check_class(const struct op_args *args)
{
	char text[SHAPE_CLASS_TEXT_BYTES];
	struct shape_class class, again;

	shape_class_of(args, &class);
	if (!shape_class_parse(shape_class_format(&class, text), &again) ||
	    shape_class_compare(&class, &again) != 0)
		abort();
}

static unsigned byte_at(const uint8_t *data, size_t len, size_t i)
{
	return len ? data[i % len] : 0;
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
			v->shape[d] = 1ull << byte_at(data, len, 3 * i + d) % 20;
		view_make_dense(v);
		v->offset = byte_at(data, len, 9 + i) % 32;
	}
	args.params.gemm.precision = (kops_precision)(byte_at(data, len, 12) % 4);
	check_class(&args);
	tuned = tuning_find(tuning, &args);
	if (!tuned)
		return;
	if (tuned->n < 1 || tuned->n > TUNED_KERNELS_MAX || strlen(tuned->why) >= TUNED_WHY_BYTES)
		abort();
	for (unsigned i = 0; i < tuned->n; i++)
		if (tuned->kernels[i] > 1)
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
	return 0;
}
