/* cases.h: the shapes and kernels of `kops-bench OP`, from the command line or a table. */
#ifndef KOPS_BENCH_CASES_H
#define KOPS_BENCH_CASES_H

#include "op/operation.h"

#define BENCH_KERNELS_MAX 64

/* Finds the shapes of a table by its name, such as "seed". KOPS_E_INVALID with a sentence in why. */
int bench_shapes_table(const struct operation *op, const char *name, struct bench_shapes *ret, char *why);

/*
 * Makes n <= BENCH_SHAPES_MAX shapes for a kind of device. The logarithms of extents are uniform, no extent is
 * a power of two but for those that are usual for the op, and every other shape has multiples of 16. The same
 * seed gives the same shapes.
 */
void bench_shapes_random(const struct operation *op, const char *kind, size_t n, uint64_t seed,
                         struct bench_shapes *ret);

/* Returns the bytes of all operands of a step from bench_shape_step(). */
uint64_t bench_footprint(const struct step *step);

/* Names of kernels, slowest first; a single NULL is the daemon's choice. */
struct bench_kernels {
	const char *names[BENCH_KERNELS_MAX];
	size_t n;
	char storage[1024];
};

/*
 * Reads NULL, "all", or names separated by commas, whose order is kept. kind: of the device, "gpu". Names point
 * into info or into *ret. KOPS_E_INVALID with a sentence that lists the kernels.
 */
int bench_kernels_read(const kops_info *info, const char *kind, const char *op, const char *text,
                       struct bench_kernels *ret, char *why);

/* Returns true if the kernel multiplies f32 on tensor cores. */
bool bench_kernel_on_tensor_cores(const kops_info *info, const char *kind, const char *op, const char *name);

/* Returns the name if that kind of device has the kernel; else NULL. name NULL: its first kernel. */
const char *bench_kernel_find(const kops_info *info, const char *kind, const char *op, const char *name);

#endif
