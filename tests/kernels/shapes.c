/* shapes.c: makes shapes, strides and parameters of random problems, op by op. */
#include <stdio.h>
#include <string.h>

#include "attention/attention.h"
#include "check.h"
#include "gemm/gemm.h"
#include "search/search.h"
#include "softmax/operands.h"
#include "top_k/top_k.h"

#ifdef KOPS_SANITIZE
#define PRODUCT_MAX (1u << 17) /* M * N * K */
#else
#define PRODUCT_MAX (1u << 20)
#endif
#define ELEMENTS_MAX   (1u << 17) /* enough for several threads */
#define LARGE_ROWS_MAX 10000000   /* the same for many long rows: more than all multiprocessors hold at once */

static uint64_t pick(const uint64_t *from, size_t n, struct random *r)
{
	return from[random_below(r, n)];
}

/* Returns an extent where kernels' tiles and vectors end: at, just below or just above one to four of them. */
static uint64_t edge_extent(struct random *r)
{
	static const uint64_t tiles[] = {8, 16, 32, 64, 128, 256};
	uint64_t tile = pick(tiles, sizeof tiles / sizeof tiles[0], r);

	return tile * (random_chance(r, 65) ? 1 : 1 + random_below(r, 4)) + random_below(r, 3) - 1;
}

uint64_t shaper_extent(struct random *r)
{
	static const uint64_t primes[] = {2,  3,   5,   7,   11,  13,  31,  37,   61,
	                                  67, 101, 127, 131, 251, 257, 509, 1021, 2053};
	uint64_t kind = random_below(r, 100);

	if (kind < 2)
		return 0;
	if (kind < 12)
		return 1;
	if (kind < 30)
		return pick(primes, sizeof primes / sizeof primes[0], r);
	if (kind < 48)
		return 1 + random_below(r, 40);
	return edge_extent(r);
}

/* Returns a row length at which kernels change their method: around powers of two and between, or any. */
static uint64_t long_extent(struct random *r)
{
	static const uint64_t edges[] = {1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 98304};

	if (random_chance(r, 75))
		return pick(edges, sizeof edges / sizeof edges[0], r) + random_below(r, 3) - 1;
	return random_chance(r, 50) ? 1 + random_below(r, 20000) : 20000 + random_below(r, 60000);
}

/* Makes an extent smaller, but as near to a tile's end as before. */
static uint64_t shrink(uint64_t extent)
{
	if ((extent + 1) % 16 == 0)
		return (extent + 1) / 2 - 1;
	if ((extent - 1) % 16 == 0)
		return (extent - 1) / 2 + 1;
	return extent % 16 == 0 ? extent / 2 : extent * 2 / 3;
}

/*
 * Shrinks the largest extents until the product is at most `most`. An extent of 0 counts as none: strides, and
 * so the memory, may still be those of the others.
 */
static void limit_product(uint64_t *extents, unsigned n, uint64_t most)
{
	for (;;) {
		uint64_t product = 1;
		unsigned largest = 0;
		for (unsigned i = 0; i < n; i++) {
			product *= extents[i] ? extents[i] : 1;
			largest = extents[i] > extents[largest] ? i : largest;
		}
		if (product <= most)
			return;
		extents[largest] = shrink(extents[largest]);
	}
}

struct view shaper_view(kops_dtype dtype, uint32_t rank, const uint64_t *shape, bool output, struct random *r)
{
	struct view v = {.dtype = dtype, .rank = rank};

	memcpy(v.shape, shape, rank * sizeof *shape);
	layout_random(&v, output, r);
	return v;
}

static kops_dtype random_dtype(struct random *r)
{
	return (kops_dtype)(KOPS_F32 + random_below(r, 4));
}

kops_dtype shaper_complex(struct random *r)
{
	return random_chance(r, 50) ? KOPS_C64 : KOPS_C128;
}

/* Returns a type for ops that move elements. */
static kops_dtype random_moved(struct random *r)
{
	return (kops_dtype)(DTYPE_FIRST + random_below(r, KOPS_C128));
}

/* Returns a type for ops without f64. */
static kops_dtype random_narrow(struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F32, KOPS_F16, KOPS_BF16};

	return dtypes[random_below(r, sizeof dtypes / sizeof dtypes[0])];
}

/* Returns one of the usual scalars, or any. */
static double random_scalar(struct random *r)
{
	static const double usual[] = {0, 1, 1, -1, 0.5};
	uint64_t i = random_below(r, 6);

	return i < 5 ? usual[i] : (double)(float)(4 * random_unit(r));
}

static struct view gemm_operand(kops_dtype dtype, uint64_t batch, uint64_t rows, uint64_t cols, bool output,
                                bool may_share, struct random *r)
{
	uint64_t shape[3] = {may_share && random_chance(r, 30) ? 1 : batch, rows, cols};
	bool flat = shape[0] == 1 && random_chance(r, 50) && (!output || batch == 1);

	return flat ? shaper_view(dtype, 2, shape + 1, output, r) : shaper_view(dtype, 3, shape, output, r);
}

/* Products of a wide range of numbers have sums of any length: some kernels compute long ones differently. */
static void large_product(uint64_t mnk[3], bool wide, struct random *r)
{
	mnk[0] = 768 + random_below(r, 300);
	mnk[1] = 768 + random_below(r, 300);
	mnk[2] = wide ? 64 + random_below(r, 1000) : 1024 + random_below(r, 80);
}

bool has_many_tiles(unsigned large)
{
	return large != 0 && large % 3 == 0;
}

static void product_of_many_tiles(uint64_t mnk[3], struct random *r)
{
	mnk[0] = 1500 + random_below(r, 700);
	mnk[1] = 1500 + random_below(r, 700);
	mnk[2] = 8 * (1 + random_below(r, 30));
}

static kops_precision random_precision(struct random *r)
{
	static const kops_precision some[] = {KOPS_PRECISION_IEEE, KOPS_PRECISION_TF32, KOPS_PRECISION_TF32,
	                                      KOPS_PRECISION_BF16};

	return random_chance(r, 50) ? KOPS_PRECISION_F32 : some[random_below(r, 4)];
}

static kops_dtype gemm_dtype(bool large, bool many_tiles, struct random *r)
{
	if (many_tiles)
		return random_narrow(r);
	if (large)
		return random_chance(r, 30) ? KOPS_C64 : KOPS_F32;
	if (random_chance(r, 30))
		return KOPS_F32;
	return random_chance(r, 30) ? shaper_complex(r) : random_dtype(r);
}

void random_complex_params(struct gemm_params *p, struct random *r)
{
	p->alpha_imag = random_chance(r, 50) ? 0 : random_scalar(r);
	p->beta_imag = random_chance(r, 70) ? 0 : random_scalar(r);
	p->conj_a = random_chance(r, 40);
	p->conj_b = random_chance(r, 40);
}

static struct view repeated_view(kops_dtype dtype, uint32_t rank, const uint64_t *shape, struct random *r)
{
	uint32_t drop = random_chance(r, 25) ? (uint32_t)random_below(r, rank) : 0;
	uint64_t kept[KOPS_RANK_MAX];

	for (uint32_t d = drop; d < rank; d++)
		kept[d - drop] = random_chance(r, 15) ? 1 : shape[d];
	return shaper_view(dtype, rank - drop, kept, false, r);
}

void random_finish(struct problem *p, struct random *r)
{
	const struct view *c = &p->args.views[GEMM_C];

	p->args.params.gemm.activation =
	    random_chance(r, 60) ? (enum unary_function)random_below(r, GEMM_ACTIVATIONS) : UNARY_NONE;
	if (random_chance(r, 60))
		p->args.views[GEMM_BIAS] = repeated_view(c->dtype, c->rank, c->shape, r);
}

static void shape_gemm(struct problem *p, struct random *r)
{
	bool many_tiles = has_many_tiles(p->large), large = p->large != 0 && !many_tiles;
	kops_dtype dtype = gemm_dtype(large, many_tiles, r);
	uint64_t mnk[3] = {shaper_extent(r), shaper_extent(r), shaper_extent(r)};
	uint64_t batch = p->large || random_chance(r, 70) ? 1 : random_below(r, 5);

	if (large)
		large_product(mnk, p->large % 2 == 0, r);
	else if (many_tiles)
		product_of_many_tiles(mnk, r);
	else
		limit_product(mnk, 3, PRODUCT_MAX / (batch ? batch : 1));
	p->args.views[0] = gemm_operand(dtype, batch, mnk[0], mnk[2], false, true, r);
	p->args.views[1] = gemm_operand(dtype, batch, mnk[2], mnk[1], false, true, r);
	p->args.views[GEMM_C] = gemm_operand(dtype, batch, mnk[0], mnk[1], true, false, r);
	p->args.params.gemm.alpha = large ? 1.5 : random_scalar(r);
	p->args.params.gemm.beta = random_chance(r, 50) ? 0 : random_scalar(r);
	p->args.params.gemm.precision = large ? KOPS_PRECISION_F32 : random_precision(r);
	if (dtype_kind(dtype) == DTYPE_COMPLEX)
		random_complex_params(&p->args.params.gemm, r);
	else if (random_chance(r, 50))
		random_finish(p, r);
}

/* Makes ranks from min to 4; the last extent is often long. */
static uint32_t random_shape(uint64_t shape[KOPS_RANK_MAX], uint32_t min, struct random *r)
{
	uint32_t rank = min + (uint32_t)random_below(r, KOPS_RANK_MAX - min + 1);

	for (uint32_t d = 0; d < rank; d++)
		shape[d] = d + 2 < rank ? random_below(r, 5) + !random_chance(r, 10) : shaper_extent(r);
	if (random_chance(r, 25)) {
		shape[rank - 1] = long_extent(r);
		limit_product(shape, rank - 1, ELEMENTS_MAX / shape[rank - 1]);
	}
	limit_product(shape, rank, ELEMENTS_MAX);
	return rank;
}

/* Makes few rows or many, of a length that several multiprocessors share; `most` elements in all. */
static uint32_t shared_rows(uint64_t shape[KOPS_RANK_MAX], uint64_t most, struct random *r)
{
	shape[1] = 33000 + random_below(r, most > 1000000 && random_chance(r, 50) ? 370000 : 70000);
	shape[0] = 1 + random_below(r, most / shape[1]);
	return 2;
}

/* Makes the elements of a row adjacent, and the rows equally far apart in both views. */
static void align_rows(struct view *x, struct view *y, struct random *r)
{
	x->strides[1] = y->strides[1] = 1;
	x->strides[0] = y->strides[0] = (int64_t)(x->shape[1] + random_below(r, 20));
}

static void shape_softmax(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_dtype(r);
	uint64_t shape[KOPS_RANK_MAX];
	bool shared = p->large || random_chance(r, 10);
	uint32_t rank = shared ? shared_rows(shape, p->large ? LARGE_ROWS_MAX : ELEMENTS_MAX, r)
	                       : random_shape(shape, 1, r);

	p->args.views[SOFTMAX_X] = shaper_view(dtype, rank, shape, false, r);
	p->args.views[SOFTMAX_Y] = shaper_view(dtype, rank, shape, true, r);
	if (random_chance(r, 40))
		p->args.views[SOFTMAX_MASK] = repeated_view(dtype, rank, shape, r);
	if (shared)
		align_rows(&p->args.views[SOFTMAX_X], &p->args.views[SOFTMAX_Y], r);
	p->args.params.softmax.scale = random_chance(r, 40) ? 1 : random_scalar(r);
	p->args.params.softmax.log = random_chance(r, 30);
}

static void exchange(uint64_t *a, uint64_t *b)
{
	uint64_t old = *a;

	*a = *b;
	*b = old;
}

/* Makes whole tiles of 64 or 128 on both sides now and then, or one element more or less. */
static uint64_t tiles_extent(struct random *r)
{
	return 64 * (1 + random_below(r, 5)) + (random_chance(r, 60) ? 0 : random_below(r, 3) - 1);
}

static uint32_t tiles_shape(uint64_t shape[KOPS_RANK_MAX], struct random *r)
{
	shape[0] = tiles_extent(r);
	shape[1] = tiles_extent(r);
	return 2;
}

static void shape_transpose(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_chance(r, 30) ? KOPS_F32 : random_moved(r);
	uint64_t shape[KOPS_RANK_MAX];
	uint32_t rank = random_chance(r, 30) ? tiles_shape(shape, r) : random_shape(shape, 2, r);

	if (random_chance(r, 50))
		exchange(&shape[rank - 2], &shape[rank - 1]);
	p->args.views[0] = shaper_view(dtype, rank, shape, false, r);
	exchange(&shape[rank - 2], &shape[rank - 1]);
	p->args.views[1] = shaper_view(dtype, rank, shape, true, r);
}

/* Makes one array whose length fits vectors of 4 exactly, or leaves a rest. */
static uint32_t array_shape(uint64_t shape[KOPS_RANK_MAX], struct random *r)
{
	uint64_t vectors = 1 + (random_chance(r, 50) ? random_below(r, 300) : random_below(r, 30000));

	shape[0] = 4 * vectors + random_below(r, 7) - 3;
	return 1;
}

/* One of those that the operand may have, complex ones less often. */
static kops_dtype random_of(const struct op_operand *operand, struct random *r)
{
	return operand->dtypes & DTYPE_BIT(KOPS_C64) && random_chance(r, 20) ? shaper_complex(r)
	                                                                     : random_dtype(r);
}

/* The parts of a complex number are one more axis. */
static uint32_t of_parts(kops_dtype dtype, uint32_t rank, uint64_t shape[KOPS_RANK_MAX])
{
	if (dtype_kind(dtype) != DTYPE_COMPLEX || rank < KOPS_RANK_MAX)
		return rank;
	memmove(shape, shape + 1, (rank - 1) * sizeof *shape);
	return rank - 1;
}

static void shape_add(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_of(&p->args.op->operands[0], r);
	uint64_t shape[KOPS_RANK_MAX];
	uint32_t rank = random_chance(r, 25) ? array_shape(shape, r) : random_shape(shape, 1, r);

	rank = of_parts(dtype, rank, shape);
	p->args.views[0] = repeated_view(dtype, rank, shape, r);
	p->args.views[1] = repeated_view(dtype, rank, shape, r);
	p->args.views[2] = shaper_view(dtype, rank, shape, true, r);
}

static void shape_copy(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_moved(r);
	uint64_t shape[KOPS_RANK_MAX];
	uint32_t rank = random_chance(r, 25) ? array_shape(shape, r) : random_shape(shape, 1, r);

	p->args.views[0] = shaper_view(dtype, rank, shape, false, r);
	p->args.views[1] = shaper_view(dtype, rank, shape, true, r);
}

/* Makes y without the last axis, or with one index there; of arg_reduce rows with elements. */
static void shape_reduce(struct problem *p, struct random *r)
{
	bool is_index = strcmp(p->args.op->name, "arg_reduce") == 0;
	kops_dtype dtype = random_of(&p->args.op->operands[0], r);
	uint64_t shape[KOPS_RANK_MAX];
	bool shared = p->large || random_chance(r, 10);
	uint32_t rank = shared ? shared_rows(shape, p->large ? LARGE_ROWS_MAX : ELEMENTS_MAX, r)
	                       : random_shape(shape, 1, r);

	if (is_index && shape[rank - 1] == 0)
		shape[rank - 1] = 1;
	rank = of_parts(dtype, rank, shape);
	p->args.views[0] = shaper_view(dtype, rank, shape, false, r);
	shape[rank - 1] = 1;
	p->args.views[1] =
	    shaper_view(is_index ? KOPS_I32 : dtype, rank - (rank > 1 && random_chance(r, 50)), shape, true, r);
	op_set_attribute(&p->args, 0, (double)random_below(r, p->args.op->attributes[0].n_choices));
	if (dtype_kind(dtype) == DTYPE_COMPLEX)
		op_set_attribute(&p->args, 0, random_chance(r, 50) ? KOPS_SUM : KOPS_MEAN);
}

/* Makes k small, or near a power of two, or all of a row. Rows have elements. */
static uint32_t random_k(uint64_t columns, struct random *r)
{
	uint64_t k = random_chance(r, 40) ? 1 + random_below(r, 16)
	                                  : ((uint64_t)1 << random_below(r, 11)) + random_below(r, 3) - 1;

	k = k > columns || random_chance(r, 10) ? columns : k;
	return (uint32_t)(k < 1 ? 1 : k < TOP_K_MAX ? k : TOP_K_MAX);
}

static void shape_top_k(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_of(&p->args.op->operands[0], r);
	uint64_t shape[KOPS_RANK_MAX];
	bool shared = p->large || random_chance(r, 10);
	uint32_t rank = shared ? shared_rows(shape, p->large ? LARGE_ROWS_MAX : ELEMENTS_MAX, r)
	                       : random_shape(shape, 1, r);
	uint32_t k = random_k(shape[rank - 1], r);

	if (shape[rank - 1] == 0)
		shape[rank - 1] = 1;
	p->args.views[TOP_K_X] = shaper_view(dtype, rank, shape, false, r);
	shape[rank - 1] = k;
	p->args.views[TOP_K_VALUES] = shaper_view(dtype, rank, shape, true, r);
	if (random_chance(r, 80))
		p->args.views[TOP_K_INDICES] = shaper_view(KOPS_I32, rank, shape, true, r);
	op_set_attribute(&p->args, 0, k);
	for (unsigned i = 1; i < p->args.op->n_attributes; i++)
		op_set_attribute(&p->args, i, (double)random_below(r, p->args.op->attributes[i].n_choices));
}

/* Rows side by side that begin at multiples of 8 elements. */
static void align_searched(struct view *v, struct random *r)
{
	view_make_dense(v);
	v->strides[0] = (int64_t)((v->shape[1] + 7) / 8 * 8 + 8 * random_below(r, 2));
}

static void shape_search(struct problem *p, struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};
	kops_dtype dtype = dtypes[random_below(r, 3)];
	uint64_t sizes[] = {shaper_extent(r), shaper_extent(r), shaper_extent(r)};

	if (random_chance(r, 40))
		sizes[0] = 1 + random_below(r, 5), sizes[1] = random_below(r, 5000);
	limit_product(sizes, 3, PRODUCT_MAX / 2);
	bool is_aligned = random_chance(r, 60);
	uint64_t rows = sizes[1], k = random_k(is_aligned ? 32u << random_below(r, 2) : SEARCH_MAX, r),
	         words = (rows + 31) / 32;
	p->args.views[SEARCH_QUERIES] = shaper_view(dtype, 2, (uint64_t[]){sizes[0], sizes[2]}, false, r);
	p->args.views[SEARCH_BASE] = shaper_view(dtype, 2, (uint64_t[]){rows, sizes[2]}, false, r);
	for (unsigned v = SEARCH_QUERIES; is_aligned && v <= SEARCH_BASE; v++)
		align_searched(&p->args.views[v], r);
	if (random_chance(r, 40)) {
		bool is_shared = random_chance(r, 50);
		uint64_t shape[] = {sizes[0], words};
		p->args.views[SEARCH_FILTER] =
		    shaper_view(KOPS_I32, 2 - is_shared, shape + is_shared, false, r);
	}
	p->args.views[SEARCH_VALUES] = shaper_view(KOPS_F32, 2, (uint64_t[]){sizes[0], k}, true, r);
	if (random_chance(r, 85))
		p->args.views[SEARCH_INDICES] = shaper_view(KOPS_I32, 2, (uint64_t[]){sizes[0], k}, true, r);
	op_set_attribute(&p->args, 0, (double)k);
	op_set_attribute(&p->args, 1, (double)random_below(r, 3));
}

/* Makes a table, and indices with one axis or two. */
static void shape_gather(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_moved(r);
	uint64_t x[] = {shaper_extent(r), shaper_extent(r)},
	         y[] = {1 + random_below(r, 5), shaper_extent(r), 0};
	bool flat = random_chance(r, 60);

	if (random_chance(r, 25))
		x[1] = long_extent(r);
	if (flat)
		y[0] = 1;
	y[2] = x[1];
	limit_product(y, 2, ELEMENTS_MAX / (x[1] ? x[1] : 1));
	limit_product(x, 1, ELEMENTS_MAX / (x[1] ? x[1] : 1));
	p->args.views[0] = shaper_view(dtype, 2, x, false, r);
	p->args.views[1] = shaper_view(KOPS_I32, 2 - flat, y + flat, false, r);
	p->args.views[2] = shaper_view(dtype, 3 - flat, y + flat, true, r);
}

/* ---- Any op, by its description ---- */

static kops_dtype dtype_among(uint32_t dtypes, struct random *r)
{
	kops_dtype dtype;

	do
		dtype = (kops_dtype)(DTYPE_FIRST + random_below(r, DTYPE_COUNT));
	while (!(dtypes & DTYPE_BIT(dtype)));
	return dtype;
}

static void set_shape(struct view *v, uint32_t rank, const uint64_t *shape)
{
	v->rank = rank;
	memcpy(v->shape, shape, rank * sizeof *shape);
	view_make_dense(v);
}

/* Returns true if the op takes these inputs and gives its first output this shape. */
static bool gives(const struct op_args *args, uint32_t rank, const uint64_t *shape)
{
	struct op_args trial = *args;
	char why[WHY_BYTES];
	const struct view *y = op_output_const(&trial);

	return op_result(&trial, why) == 0 && y->rank == rank &&
	       memcmp(y->shape, shape, rank * sizeof *shape) == 0;
}

/* Makes an input smaller if the op still takes it: without leading axes, some of one index. */
static void shrink_input(struct op_args *args, unsigned v, uint32_t rank, const uint64_t *shape,
                         struct random *r)
{
	uint32_t drop = random_chance(r, 40) ? (uint32_t)random_below(r, rank) : 0;
	uint64_t kept[KOPS_RANK_MAX];
	struct view before = args->views[v];

	for (uint32_t d = drop; d < rank; d++)
		kept[d - drop] = random_chance(r, 15) ? 1 : shape[d];
	set_shape(&args->views[v], rank - drop, kept);
	if (!gives(args, rank, shape))
		args->views[v] = before;
}

static double random_attribute(const struct op_attribute *a, struct random *r)
{
	double value = random_chance(r, 30) ? a->otherwise : random_scalar(r);

	if (a->type == ATTRIBUTE_CHOICE)
		return (double)random_below(r, a->n_choices);
	if (a->type == ATTRIBUTE_FLAG)
		return (double)random_below(r, 2);
	if (a->type == ATTRIBUTE_COUNT)
		value = (double)random_below(r, 20);
	return value < a->min ? a->min : value > a->max ? a->max : value;
}

static kops_dtype operand_dtype(const struct op_args *args, unsigned v, struct random *r)
{
	const struct op_operand *o = &args->op->operands[v];
	bool shares = o->dtype_of != OWN_DTYPE && v > 0 && !view_is_absent(&args->views[o->dtype_of]);

	return shares ? args->views[o->dtype_of].dtype : dtype_among(o->dtypes, r);
}

/* Makes the operand absent, or gives it as many of the last axes as the op takes, or fewer where it repeats. */
static void shape_optional(struct op_args *args, unsigned v, struct random *r)
{
	struct view most;

	if (random_chance(r, 30))
		return;
	args->views[v].dtype = operand_dtype(args, v, r);
	if (op_fit_optional(args, v, ANY_COUNT)) {
		most = args->views[v];
		shrink_input(args, v, most.rank, most.shape, r);
	}
}

/*
 * Makes inputs of one shape, some of them smaller, and optional ones as they fit. Outputs follow from the op.
 */
static void shape_described(struct problem *p, struct random *r)
{
	struct op_args *args = &p->args;
	const struct op *op = args->op;
	unsigned out = op_first_output(op);
	uint64_t shape[KOPS_RANK_MAX];
	uint32_t rank = random_chance(r, 25) ? array_shape(shape, r) : random_shape(shape, 1, r);
	char why[WHY_BYTES];

	for (unsigned i = 0; i < op->n_attributes; i++)
		op_set_attribute(args, i, random_attribute(&op->attributes[i], r));
	for (unsigned v = 0; v < out && !op->operands[v].is_optional; v++) {
		args->views[v].dtype = operand_dtype(args, v, r);
		set_shape(&args->views[v], rank, shape);
	}
	for (unsigned v = 0; v < out && !op->operands[v].is_optional; v++)
		shrink_input(args, v, rank, shape, r);
	for (unsigned v = 0; v < out; v++)
		if (op->operands[v].is_optional)
			shape_optional(args, v, r);
	if (op_result(args, why) < 0)
		fprintf(stderr, "%s takes no inputs of one shape (%s): it needs a line in shapes.c\n", op->name,
		        why);
	for (unsigned v = out; v < op->n_operands; v++)
		if (op->operands[v].is_optional && random_chance(r, 30))
			args->views[v] = (struct view){.rank = 0};
	for (unsigned v = 0; v < op->n_operands; v++)
		if (!view_is_absent(&args->views[v]))
			layout_random(&args->views[v], v >= out, r);
}

/* Drops leading axes of one index now and then. */
static struct view heads_view(kops_dtype dtype, const uint64_t shape[4], uint32_t rank, bool output,
                              struct random *r)
{
	return shaper_view(dtype, rank, shape + 4 - rank, output, r);
}

/* The extents of an attention. */
struct heads {
	uint64_t batch, shared, heads, queries, keys, depth, values;
};

static struct heads random_heads(uint32_t rank, bool usual, struct random *r)
{
	static const uint64_t depths[] = {16, 32, 64, 64, 80, 96, 128, 128, 192, 256};
	struct heads h = {.batch = rank < 4 ? 1 : random_below(r, 3) + !random_chance(r, 10),
	                  .shared = rank < 3 ? 1 : 1 + random_below(r, 3)};

	h.heads = rank < 3 ? 1 : h.shared * (1 + random_below(r, 3));
	h.queries = random_chance(r, 20) ? 1 : usual ? tiles_extent(r) : shaper_extent(r);
	h.keys = usual ? tiles_extent(r) : shaper_extent(r);
	h.depth = usual || random_chance(r, 60) ? pick(depths, 10, r) : shaper_extent(r);
	h.values = random_chance(r, usual ? 80 : 60) ? h.depth : usual ? pick(depths, 10, r) : shaper_extent(r);
	h.depth = h.depth < ATTENTION_DEPTH_MAX ? h.depth : ATTENTION_DEPTH_MAX;
	h.values = h.values < ATTENTION_DEPTH_MAX ? h.values : ATTENTION_DEPTH_MAX;
	return h;
}

static void limit_heads(struct heads *h, uint64_t terms)
{
	uint64_t rows[2] = {h->queries, h->keys};

	limit_product(rows, 2, terms / (h->batch * h->heads + 1) / (h->depth + h->values + 1) + 1);
	h->queries = rows[0], h->keys = rows[1];
}

/* As programs have them: rows of whole pieces of 16 bytes, one head after another, or all heads of a query. */
static void lay_out_heads(struct view *v, struct random *r)
{
	uint32_t d = v->rank - 1;
	int64_t row = (int64_t)(v->shape[d] + 7) / 8 * 8 + 8 * (int64_t)random_below(r, 3);
	int64_t heads = d > 1 ? (int64_t)v->shape[d - 2] : 1, rows = (int64_t)v->shape[d - 1];
	bool by_heads = random_chance(r, 50);

	v->strides[d] = 1;
	v->strides[d - 1] = by_heads ? row : row * heads;
	if (d > 1)
		v->strides[d - 2] = by_heads ? row * rows : row;
	if (d > 2)
		v->strides[0] = row * rows * heads;
}

static void shape_attention(struct problem *p, struct random *r)
{
	bool usual = p->large || random_chance(r, 40);
	kops_dtype dtype = !usual                 ? random_dtype(r)
	                   : random_chance(r, 30) ? KOPS_F32
	                   : random_chance(r, 50) ? KOPS_F16
	                                          : KOPS_BF16;
	uint32_t rank = 2 + (uint32_t)random_below(r, 3);
	struct heads h = random_heads(rank, usual, r);

	limit_heads(&h, (p->large ? 64 : 4) * (uint64_t)PRODUCT_MAX);
	memset(p->args.views, 0, sizeof p->args.views);
	const uint64_t scores[4] = {h.batch, h.heads, h.queries, h.keys};
	p->args.views[ATTENTION_Q] =
	    heads_view(dtype, (uint64_t[]){h.batch, h.heads, h.queries, h.depth}, rank, false, r);
	p->args.views[ATTENTION_K] =
	    heads_view(dtype, (uint64_t[]){h.batch, h.shared, h.keys, h.depth}, rank, false, r);
	p->args.views[ATTENTION_V] =
	    heads_view(dtype, (uint64_t[]){h.batch, h.shared, h.keys, h.values}, rank, false, r);
	p->args.views[ATTENTION_O] =
	    heads_view(dtype, (uint64_t[]){h.batch, h.heads, h.queries, h.values}, rank, true, r);
	p->aligned = usual;
	for (unsigned v = ATTENTION_Q; usual && v <= ATTENTION_O; v++)
		if (!view_is_absent(&p->args.views[v]))
			lay_out_heads(&p->args.views[v], r);
	if (random_chance(r, usual ? 15 : 40))
		p->args.views[ATTENTION_MASK] = repeated_view(dtype, 4, scores, r);
	if (random_chance(r, 30))
		p->args.views[ATTENTION_LENGTHS] = shaper_view(KOPS_I32, 1, &h.batch, false, r);
	if (random_chance(r, 40))
		p->args.views[ATTENTION_LSE] =
		    shaper_view(dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32, rank - 1,
		                &(uint64_t[]){h.batch, h.heads, h.queries}[4 - rank], true, r);
	p->args.params.plain.counts[ATTENTION_DIAGONAL] = (uint32_t)random_below(r, 3);
	p->args.params.plain.counts[ATTENTION_WINDOW] = random_chance(r, 30) ? (uint32_t)shaper_extent(r) : 0;
	p->args.params.plain.numbers[ATTENTION_SCALE] = random_chance(r, 60) ? 0 : random_scalar(r);
}

/* For ops whose inputs depend on each other otherwise, or whose kernels change their method at some shapes. */
static const struct shaper shapers[] = {{"gemm", shape_gemm, false},
                                        {"softmax", shape_softmax, false},
                                        {"transpose", shape_transpose, false},
                                        {"add", shape_add, false},
                                        {"subtract", shape_add, false},
                                        {"copy", shape_copy, false},
                                        {"reduce", shape_reduce, true},
                                        {"gather", shape_gather, true},
                                        {"attention", shape_attention, true},
                                        {"arg_reduce", shape_reduce, true},
                                        {"top_k", shape_top_k, true},
                                        {"search", shape_search, true},
                                        {"cholesky", shaper_cholesky, true},
                                        {"triangular_solve", shaper_triangular_solve, true},
                                        {"lu", shaper_lu, true}};

const struct shaper *shaper_of(const struct op *op)
{
	static const struct shaper described = {NULL, shape_described, true};

	for (unsigned i = 0; i < sizeof shapers / sizeof shapers[0]; i++)
		if (strcmp(shapers[i].op, op->name) == 0)
			return &shapers[i];
	return &described;
}
