/*
 * cases.h: what `kops-bench OP` is to run: shapes from the command line or a table, kernels by name.
 */
#ifndef KOPS_BENCH_CASES_H
#define KOPS_BENCH_CASES_H

#include "op/operation.h"

#define BENCH_KERNELS_MAX 64

/* The product of the extents that a shape has; the others are 0. */
double bench_shape_product(const struct bench_shape *shape);

/* The shapes of a table by its name, "seed". Errors as above. */
int bench_shapes_table(const struct operation *op, const char *name, struct bench_shapes *ret, char *why);

/*
 * n <= BENCH_SHAPES_MAX shapes for a kind of device: the logarithms of extents uniform, no power of two among
 * them, every other shape of multiples of 16. The same for the same seed.
 */
void bench_shapes_random(const struct operation *op, const char *kind, size_t n, uint64_t seed,
                         struct bench_shapes *ret);

/* Bytes of all the operands of a step from bench_shape_step(). */
uint64_t bench_footprint(const struct step *step);

/* Names of kernels, slowest first; a single NULL is the daemon's choice. */
struct bench_kernels {
	const char *names[BENCH_KERNELS_MAX];
	size_t n;
	char storage[1024];
};

/*
 * text: NULL, "all", or names with commas between them, which stay in that order. kind: of the device, "gpu".
 * Names point into info or into *ret. KOPS_E_INVALID with a sentence that lists the kernels there are.
 */
int bench_kernels_read(const kops_info *info, const char *kind, const char *op, const char *text,
                       struct bench_kernels *ret, char *why);

/* Whether that kernel multiplies f32 on tensor cores. */
bool bench_kernel_on_tensor_cores(const kops_info *info, const char *kind, const char *op, const char *name);

/* Whether that kind of device has the kernel; name NULL: its first one. NULL if not, else the name. */
const char *bench_kernel_find(const kops_info *info, const char *kind, const char *op, const char *name);

#endif
