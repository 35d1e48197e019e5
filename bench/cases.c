#include "cases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "random.h"

int bench_shapes_table(const struct operation *op, const char *name, struct bench_shapes *ret, char *why)
{
	if (strcmp(name, "seed") != 0)
		return why_invalid(why, "there is no table '%s'; --table takes seed", name);
	return bench_shapes_read(op, op->bench.seed, ret, why);
}

/* ---- random shapes ---- */

static bool is_power_of_two(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

/* Programs have a few rows or columns of any number, and rarely a power of two of many. */
#define FEW 16

static bool is_special(uint64_t extent)
{
	return extent > FEW && is_power_of_two(extent);
}

static uint64_t random_extent(struct random *random, uint64_t low, uint64_t high, uint64_t multiple)
{
	uint64_t extent;

	do {
		double part = (random_unit(random) + 1) / 2;
		extent = (uint64_t)((double)low * pow((double)high / (double)low, part));
		extent = extent < multiple ? extent : extent / multiple * multiple;
	} while (extent < low || is_special(extent));
	return extent;
}

/* Three times of four, if there are some. */
static uint64_t random_or_usual(struct random *random, const struct bench_span *span, size_t i, bool even)
{
	const uint64_t *usual = span->usual[i];
	size_t n = 0;

	while (usual && usual[n])
		n++;
	if (n > 0 && random_below(random, 4) > 0)
		return usual[random_below(random, n)];
	return random_extent(random, span->low[i], span->high[i], even ? 16 : 1);
}

static bool exceeds(const struct bench_span *span, const uint64_t *extents, size_t n)
{
	uint64_t all = 1;

	for (size_t i = 0; i < n; i++) {
		all *= extents[i];
		for (size_t j = 0; j < i; j++)
			if (span->pair && extents[i] * extents[j] > span->pair)
				return true;
	}
	return all > span->elements;
}

/* Extents that depend on each other, as heads do, are drawn until they belong together. */
static bool belongs_together(const struct operation *op, const struct bench_shape *shape)
{
	char why[CLI_WHY_BYTES];
	struct step step;

	return bench_shape_step(op, KOPS_F32, shape, NULL, &step, why) == 0;
}

static void random_shape(const struct operation *op, const struct bench_span *span, bool even,
                         struct random *random, struct bench_shape *ret)
{
	*ret = (struct bench_shape){.text = ""};
	do {
		for (size_t i = 0; i < op->bench.n_extents; i++)
			ret->extents[i] = random_or_usual(random, span, i, even);
	} while (exceeds(span, ret->extents, op->bench.n_extents) || !belongs_together(op, ret));
	bench_shape_name(op, ret);
}

void bench_shapes_random(const struct operation *op, const char *kind, size_t n, uint64_t seed,
                         struct bench_shapes *ret)
{
	bool is_cpu = strcmp(kind, "cpu") == 0, has_extreme = !is_cpu && op->bench.extreme.elements > 0;
	const struct bench_span *usual = is_cpu ? &op->bench.random_cpu : &op->bench.random;
	struct random random;

	random_start(&random, seed);
	for (ret->n = 0; ret->n < n; ret->n++)
		random_shape(op, has_extreme && ret->n % 4 >= 2 ? &op->bench.extreme : usual, ret->n % 2 == 1,
		             &random, &ret->list[ret->n]);
}

/* ---- operands ---- */

static uint64_t view_bytes(const kops_view *view)
{
	return step_elements(view) * kops_dtype_size(view->dtype);
}

uint64_t bench_footprint(const struct step *step)
{
	uint64_t bytes = view_bytes(&step->out);

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		bytes += step_has(step, i) ? view_bytes(&step->in[i]) : 0;
	return bytes;
}

/* ---- kernels ---- */

static bool kernel_is(const kops_kernel_info *kernel, const char *kind, const char *op)
{
	return strcmp(kernel->op, op) == 0 && strcmp(kernel->device_kind, kind) == 0;
}

const char *bench_kernel_find(const kops_info *info, const char *kind, const char *op, const char *name)
{
	for (size_t i = 0; i < info->n_kernels; i++)
		if (kernel_is(kops_info_kernel(info, i), kind, op) &&
		    (name == NULL || strcmp(kops_info_kernel(info, i)->name, name) == 0))
			return kops_info_kernel(info, i)->name;
	return NULL;
}

/* Reverses the list, which goes from best to worst: reports go from slowest to fastest. */
static void take_all(const kops_info *info, const char *kind, const char *op, struct bench_kernels *ret)
{
	for (size_t i = info->n_kernels; i-- > 0 && ret->n < BENCH_KERNELS_MAX;)
		if (kernel_is(kops_info_kernel(info, i), kind, op))
			ret->names[ret->n++] = kops_info_kernel(info, i)->name;
}

static int no_kernel(const kops_info *info, const char *kind, const char *op, const char *name, char *why)
{
	struct bench_kernels all = {.n = 0};
	char list[512] = "";
	size_t used = 0;

	take_all(info, kind, op, &all);
	for (size_t i = 0; i < all.n && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", all.names[i]);
	return why_invalid(why, "%s has no kernel '%s' on this device; it has %s, and 'all'", op, name,
	                   all.n ? list : "none");
}

static int take_listed(const kops_info *info, const char *kind, const char *op, const char *text,
                       struct bench_kernels *ret, char *why)
{
	char *rest, *name;

	if (strlen(text) >= sizeof(ret->storage))
		return why_invalid(why, "--kernel is longer than %zu bytes", sizeof(ret->storage) - 1);
	strcpy(ret->storage, text);
	for (rest = ret->storage; (name = strsep(&rest, ",")) != NULL;) {
		if (bench_kernel_find(info, kind, op, name) == NULL)
			return no_kernel(info, kind, op, name, why);
		if (ret->n == BENCH_KERNELS_MAX)
			return why_invalid(why, "--kernel takes up to %d names", BENCH_KERNELS_MAX);
		ret->names[ret->n++] = name;
	}
	return 0;
}

int bench_kernels_read(const kops_info *info, const char *kind, const char *op, const char *text,
                       struct bench_kernels *ret, char *why)
{
	ret->n = 0;
	if (text == NULL) {
		ret->names[ret->n++] = NULL;
		return 0;
	}
	if (strcmp(text, "all") != 0)
		return take_listed(info, kind, op, text, ret, why);
	take_all(info, kind, op, ret);
	return ret->n ? 0 : no_kernel(info, kind, op, text, why);
}

bool bench_kernel_on_tensor_cores(const kops_info *info, const char *kind, const char *op, const char *name)
{
	for (size_t i = 0; i < info->n_kernels; i++)
		if (kernel_is(kops_info_kernel(info, i), kind, op) &&
		    strcmp(kops_info_kernel(info, i)->name, name) == 0)
			return kops_info_kernel(info, i)->tensor_cores;
	return false;
}
