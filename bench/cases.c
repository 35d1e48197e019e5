#include "cases.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "why.h"

#define EXTENT_MAX (1ull << 40)
#define STEPS_MAX  UINT32_MAX
#define FMA_STEPS  256 /* where only the elements are given */

/* ---- shapes ---- */

static bool is(const struct operation *op, const char *name)
{
	return strcmp(op->name, name) == 0;
}

static size_t extents_of(const struct operation *op)
{
	return is(op, "gemm") ? 3 : 2;
}

static void write_text(const struct operation *op, struct bench_shape *shape)
{
	const uint64_t *e = shape->extents;

	if (extents_of(op) == 3)
		snprintf(shape->text, sizeof(shape->text), "%" PRIu64 "x%" PRIu64 "x%" PRIu64, e[0], e[1],
		         e[2]);
	else
		snprintf(shape->text, sizeof(shape->text), "%" PRIu64 "x%" PRIu64, e[0], e[1]);
}

/* One shape of `length` characters. */
static bool read_shape(const struct operation *op, const char *text, size_t length, struct bench_shape *ret)
{
	const char *end = text + length;
	size_t n = 0, n_extents = extents_of(op);
	char *next;

	for (;; text = next + 1) {
		if (text >= end || *text < '0' || *text > '9' || n == n_extents)
			return false;
		ret->extents[n] = strtoull(text, &next, 10);
		if (ret->extents[n] == 0 || ret->extents[n] > EXTENT_MAX)
			return false;
		n++;
		if (next == end)
			break;
		if (*next != 'x')
			return false;
	}
	for (size_t i = 1; n == 1 && i < n_extents; i++)
		ret->extents[i] = is(op, "fma") ? FMA_STEPS : ret->extents[0];
	write_text(op, ret);
	return (n == 1 || n == n_extents) && !(is(op, "fma") && ret->extents[1] > STEPS_MAX);
}

static const char *shape_form(const struct operation *op)
{
	if (is(op, "gemm"))
		return "MxNxK, or one number for a cube";
	if (is(op, "fma"))
		return "ELEMENTSxSTEPS, or the elements alone";
	return "ROWSxCOLUMNS, or one number for a square";
}

int bench_shapes_read(const struct operation *op, const char *text, struct bench_shapes *ret, char *why)
{
	for (ret->n = 0; ret->n < BENCH_SHAPES_MAX; text++) {
		size_t length = strcspn(text, ",");
		if (!read_shape(op, text, length, &ret->list[ret->n]))
			return why_invalid(why,
			                   "'%.*s' is no shape for %s: write %s, with commas between several",
			                   (int)length, text, op->name, shape_form(op));
		ret->n++;
		text += length;
		if (*text == '\0')
			return 0;
	}
	return why_invalid(why, "more than %d shapes", BENCH_SHAPES_MAX);
}

/*
 * The tables of the documents that teach these kernels. The largest of each but gemm's takes 4 GB or a little
 * more in all operands.
 */
static const struct {
	const char *op, *shapes;
} seed_tables[] = {
    {"gemm", "128x128x1024,256x256x1024,512x512x1024,1024x1024x1024,2048x2048x1024,4096x4096x1024,"
             "8192x8192x1024,16384x16384x1024"},
    {"softmax", "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,16384x4096,"
                "1024x131072,128x1048576,262144x1024,524288x1024"},
    {"transpose", "512,1024,2048,4096,8192,16384,16383x16381,23168"},
    {"add", "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,262144x1024,349525x1024"},
    {"copy", "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,262144x1024,524288x1024"},
    {"fma", "4194304x1,4194304x4,4194304x16,4194304x64,4194304x256,4194304x1024,4194304x4096"},
};

int bench_shapes_table(const struct operation *op, const char *name, struct bench_shapes *ret, char *why)
{
	if (strcmp(name, "seed") != 0)
		return why_invalid(why, "there is no table '%s'; --table takes seed", name);
	for (size_t i = 0; i < sizeof(seed_tables) / sizeof(seed_tables[0]); i++)
		if (is(op, seed_tables[i].op))
			return bench_shapes_read(op, seed_tables[i].shapes, ret, why);
	return why_invalid(why, "there is no table for %s", op->name);
}

/* ---- random shapes ---- */

/* Extents from low to high; of footprints, the largest. The CPU's ends are where it takes as long as a GPU
 * does. */
struct span {
	const char *op;
	uint64_t low[3], high[3], high_cpu[3], most_elements, most_elements_cpu;
};

static const struct span spans[] = {
    {"gemm", {32, 32, 32}, {8192, 8192, 8192}, {768, 768, 768}, 1ull << 40, 1ull << 40},
    {"softmax", {1, 32}, {1 << 16, 1 << 18}, {1 << 12, 1 << 14}, 1ull << 27, 1ull << 20},
    {"transpose", {32, 32}, {1 << 15, 1 << 15}, {1 << 11, 1 << 11}, 1ull << 28, 1ull << 20},
    {"add", {1, 32}, {1 << 15, 1 << 15}, {1 << 11, 1 << 11}, 1ull << 27, 1ull << 20},
    {"copy", {1, 32}, {1 << 15, 1 << 15}, {1 << 11, 1 << 11}, 1ull << 27, 1ull << 20},
    {"fma", {1024, 3}, {1 << 24, 1 << 9}, {1 << 16, 1 << 6}, 1ull << 31, 1ull << 22},
};

static bool is_power_of_two(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

static uint64_t random_extent(struct random *random, uint64_t low, uint64_t high, uint64_t multiple)
{
	uint64_t extent;

	do {
		double part = (random_unit(random) + 1) / 2;
		extent = (uint64_t)((double)low * pow((double)high / (double)low, part));
		extent = extent < multiple ? extent : extent / multiple * multiple;
	} while (extent < low || is_power_of_two(extent));
	return extent;
}

static void random_shape(const struct operation *op, const struct span *span, bool cpu, bool even,
                         struct random *random, struct bench_shape *ret)
{
	const uint64_t *high = cpu ? span->high_cpu : span->high;
	uint64_t most = cpu ? span->most_elements_cpu : span->most_elements, all;

	*ret = (struct bench_shape){.text = ""};
	do {
		all = 1;
		for (size_t i = 0; i < extents_of(op); i++) {
			ret->extents[i] = random_extent(random, span->low[i], high[i], even ? 16 : 1);
			all *= ret->extents[i];
		}
	} while (all > most);
	write_text(op, ret);
}

void bench_shapes_random(const struct operation *op, const char *kind, size_t n, uint64_t seed,
                         struct bench_shapes *ret)
{
	const struct span *span = spans;
	struct random random;

	while (!is(op, span->op))
		span++;
	random_start(&random, seed);
	for (ret->n = 0; ret->n < n; ret->n++)
		random_shape(op, span, strcmp(kind, "cpu") == 0, ret->n % 2 == 1, &random, &ret->list[ret->n]);
}

/* ---- operands ---- */

static kops_view dense(kops_dtype dtype, uint64_t rows, uint64_t columns)
{
	return kops_tensor(NULL, 0, dtype, 2, (uint64_t[]){rows, columns});
}

static int check_bytes(const kops_view *view, char *why)
{
	uint64_t bytes;

	return step_bytes(view->dtype, view->rank, view->shape, &bytes, why);
}

int bench_shape_step(const struct operation *op, kops_dtype dtype, const struct bench_shape *shape,
                     struct step *ret_step, char *why)
{
	const uint64_t *e = shape->extents;
	struct step step = step_of(op);
	int rc;

	step.in[0] = dense(dtype, e[0], e[1]);
	step.in[1] = dense(dtype, e[0], e[1]);
	step.out = dense(dtype, e[0], e[1]);
	if (is(op, "gemm")) {
		step.in[0] = dense(dtype, e[0], e[2]);
		step.in[1] = dense(dtype, e[2], e[1]);
	} else if (is(op, "transpose")) {
		step.out = dense(dtype, e[1], e[0]);
	} else if (is(op, "fma")) {
		/* There and back: no overflow and no subnormal numbers, however many steps. */
		step.set.alpha = (struct opt_real){true, -1};
		step.set.beta = (struct opt_real){true, 0.5};
		step.set.steps = (struct opt_count){true, e[1]};
		step.in[0] = step.out = dense(dtype, 1, e[0]);
	}
	for (unsigned i = 0; i < op->n_inputs; i++)
		if ((rc = check_bytes(&step.in[i], why)) < 0)
			return rc;
	if ((rc = check_bytes(&step.out, why)) < 0)
		return rc;
	*ret_step = step;
	return 0;
}

static uint64_t view_bytes(const kops_view *view)
{
	return view->shape[0] * view->shape[1] * kops_dtype_size(view->dtype);
}

uint64_t bench_footprint(const struct step *step)
{
	uint64_t bytes = view_bytes(&step->out);

	for (unsigned i = 0; i < step->op->n_inputs; i++)
		bytes += view_bytes(&step->in[i]);
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

/* The list goes from best to worst; reports go from the slowest to the fastest. */
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
