/* load.h: what the heavy user computes, from words such as "gemm:f32:tf32:8192:x4:host". */
#ifndef KOPS_BENCH_BESIDE_LOAD_H
#define KOPS_BENCH_BESIDE_LOAD_H

#include "op/operation.h"

#define LOAD_TEXT_BYTES 80
#define LOAD_OPS_MAX    64 /* what libkops sends in one job */
#define LOADS_MAX       64

/* Jobs of equal ops. Holds no memory, and no pointer that a child of fork() lacks. */
struct load {
	char text[LOAD_TEXT_BYTES];
	const struct operation *op;
	kops_dtype dtype;
	bool has_precision;
	kops_precision precision;
	struct bench_shape shape;
	unsigned ops;
	bool host; /* operands in SHARED memory */
	bool anew; /* each job has another shape */
};

struct loads {
	struct load list[LOADS_MAX];
	size_t n;
};

/* Reads OP[:DTYPE[:PRECISION]]:SHAPE[:xN][:host][:anew]. KOPS_E_INVALID with a sentence in why. */
int load_read(const char *text, struct load *ret, char *why);

/* Reads words up to a NULL. Without any, takes the loads for that kind of device. */
int loads_read(char *const *words, const char *kind, struct loads *ret, char *why);

/* Returns the op on dense operands without buffers, of the shape of job n: smaller by a few elements if anew.
 */
int load_step(const struct load *load, uint64_t n, struct step *ret_step, char *why);

#endif
