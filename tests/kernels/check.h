/*
 * check.h: the parts of check_kernels, the harness that runs every op × device × kernel against the op's
 * reference.
 *
 *   problem.c        random problems: memory, layouts, values
 *   shapes.c         their shapes, strides and parameters, op by op; shapes_linalg.c: of matrices to be solved
 *   target.c         devices; runs a problem on one through the table of its driver (check_accuracy's too)
 *   judge.c          error bounds; compares outputs, and every byte around them
 *   chain.c          runs of several ops over shared intermediates
 *   together.c       ops in one launch against the same ops alone
 *   large.c          outputs of more than 2^31 elements
 *   check_kernels.c  options, the table
 */
#ifndef KOPS_CHECK_H
#define KOPS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "device/driver.h"
#include "plan/plan.h"

#define CHECK_TEXT_BYTES 1024

/* ---- Random numbers: splitmix64 ---- */

struct random {
	uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Uniform in [0, n), n > 0. */
static inline uint64_t random_below(struct random *r, uint64_t n)
{
	return random_next(r) % n;
}

/* True in `percent` of 100 calls. */
static inline bool random_chance(struct random *r, unsigned percent)
{
	return random_below(r, 100) < percent;
}

/* Uniform in [-1, 1). */
static inline double random_unit(struct random *r)
{
	return (double)(random_next(r) >> 11) * 0x1p-52 - 1;
}

/* ---- Problems ---- */

#define SPACES_MAX 8

/* One buffer of a problem, in three versions of equal size. */
struct space {
	struct memory memory; /* as the device sees it; .host is the address that SHARED memory is mapped at */
	unsigned char *host, *before, *expected;
	uint64_t bytes; /* a multiple of 8 */
	bool resident;
	bool pinnable; /* register it for DMA if the driver can */
};

/* An op over spaces. args have passed check(). */
struct problem {
	struct op_args args;
	struct space *spaces[OP_OPERANDS_MAX]; /* the space of each view; may repeat */
	struct space storage[OP_OPERANDS_MAX];
	unsigned n_storage;
	unsigned large; /* for kernels that leave small problems to others; the reference takes seconds. 0: not
	                   large */
	bool aligned;   /* views begin at 16 bytes, and stay as they were made. Set by shapers */
	bool huge;      /* magnitudes near the end of the range: overflow may come early or late. Set before
	                   problem_make(): requested */
	bool special;   /* some input has NaN or Inf */
};

/*
 * Makes a random problem of op with every space in its `before` state. Returns false if out of memory. large:
 * 0, or the number of a large problem. Every other large problem has numbers of a wide range, which kernels may
 * treat differently.
 */
bool problem_make(struct problem *p, const struct op *op, unsigned large, struct random *r);
/*
 * Completes a problem whose op, shapes, strides and parameters are in p->args. neat: views begin at 16 bytes.
 */
bool problem_complete(struct problem *p, bool neat, bool resident, struct random *r);
void problem_free(struct problem *p);
/* Writes shapes, strides and parameters, for reports of failures. */
void problem_describe(const struct problem *p, char text[CHECK_TEXT_BYTES]);

/* How to make random problems of an op. */
struct shaper {
	const char *op; /* NULL: ops without a line in shapes.c, by their descriptions */
	void (*shape)(struct problem *p, struct random *r); /* p->large and args.op are set */
	bool fewer_axes;                                    /* the output's last axis may not be the inputs' */
};
const struct shaper *shaper_of(const struct op *op);

/* For shapers (shapes.c): an extent near a tile's end, or any; a complex type; a view of random strides. */
uint64_t shaper_extent(struct random *r);
kops_dtype shaper_complex(struct random *r);
struct view shaper_view(kops_dtype dtype, uint32_t rank, const uint64_t *shape, bool output, struct random *r);

/* shapes_linalg.c */
void shaper_cholesky(struct problem *p, struct random *r);
void shaper_lu(struct problem *p, struct random *r);
void shaper_triangular_solve(struct problem *p, struct random *r);

/* Makes factors of a complex product complex now and then, and its operands conjugated. */
void random_complex_params(struct gemm_params *p, struct random *r);

/* Gives a product a bias that is repeated along some axes, or an activation, or both. */
void random_finish(struct problem *p, struct random *r);

/* Returns true for every third large product: it has more tiles of C than there are multiprocessors. */
bool has_many_tiles(unsigned large);

/* Rounds bytes up to 8, and fills all three versions with 0xff, a NaN of every dtype. */
bool space_make(struct space *s, uint64_t bytes);
void space_free(struct space *s);

/* Makes random strides for v's shape: permuted, padded, gapped, reversed; for inputs also repeated. */
void layout_random(struct view *v, bool output, struct random *r);
/* Sets v->offset to a random place from `*used` on and moves *used behind the view. */
void layout_place(struct view *v, uint64_t *used, struct random *r);

/* Steps through the elements in row-major order. index starts as zeros; returns false after the last. */
bool view_step(const struct view *v, uint64_t index[KOPS_RANK_MAX]);
/* Returns elements from element (0, …). */
int64_t view_at(const struct view *v, const uint64_t index[KOPS_RANK_MAX]);

/* ---- Targets ---- */

struct target {
	const struct driver *driver;
	struct device_state *dev;
	struct planner planner;
	char name[16];
};

/*
 * Returns the CPU's driver, or that of the module at this path; NULL with a message on stderr if there is
 * none.
 */
const struct driver *target_driver(const char *module);

/*
 * Opens each device, or the one of this name, and checks it. Returns how many checks failed, or -1 if there is
 * no device.
 */
int target_each(const struct driver *driver, const char *device,
                unsigned (*check)(struct target *t, const void *options), const void *options);

/*
 * Loads `before` into the spaces (resident ones by copy ops), runs the ops of run, waits, and leaves the result
 * in s->host. Returns KOPS_E_UNSUPPORTED if a kernel refused, or another code with a sentence in run->error.
 */
int target_run(struct target *t, struct run *run, struct space *const spaces[], unsigned n_spaces);

/* Plans, starts and waits. All memory must be in place. */
int target_compute(struct target *t, struct run *run);

/* The other steps of target_run(), for several runs at once. */
int target_load(struct target *t, struct space *s, char why[WHY_BYTES]);
int target_unload(struct target *t, struct space *s, char why[WHY_BYTES]);
void target_drop(struct target *t, struct space *s);
/* Waits for n runs that were started. Returns false after a minute. */
bool target_wait(struct target *t, unsigned n);

/* Allocates RESIDENT memory, zeroed if the device's own is. KOPS_E_NOMEM. */
int target_alloc(struct target *t, uint64_t bytes, void **ret_address);
void target_free(struct target *t, void *address);

/* ---- Judging ---- */

struct verdict {
	bool right;
	double worst; /* largest error relative to its bound */
	char why[CHECK_TEXT_BYTES];
};

/* The op over the problem's memory as it was before, or as the reference left it. */
struct op_args judge_images(const struct problem *p, bool expected);

/* Of rows that were found: judges outputs after the first (judge_search.c). */
bool judge_search(const struct problem *p, struct verdict *ret);

/* What the reference gives for a problem: computed once, used for every kernel. */
struct oracle {
	/* Per output element in row-major order, of complex ones per part; bound < 0: not judged. */
	double *exact, *bound;
	uint64_t n;
};

bool oracle_make(struct oracle *o, struct problem *p, char why[CHECK_TEXT_BYTES]);
void oracle_free(struct oracle *o);
void judge(const struct oracle *o, const struct problem *p, struct verdict *ret);

/*
 * Returns true if s->host equals s->expected except at elements of the n views; else why has the first
 * difference.
 */
bool judge_surroundings(struct space *s, const struct view *const views[], unsigned n,
                        char why[CHECK_TEXT_BYTES]);

/* ---- Whole checks: print what failed, and return how many did ---- */

struct options {
	uint64_t seed;
	unsigned cases, often; /* often: one in `often` problems is large */
	int only_case;         /* -1: all */
	const char *op, *kernel, *without, *device, *module;
	bool large, quiet;
};

unsigned chain_check(struct target *t, const struct options *o);
unsigned large_check(struct target *t, const struct options *o);
/* For kernels with launch_together(). */
unsigned together_check(struct target *t, const struct options *o, const struct op *op,
                        const struct kernel *kernel);

#endif
