#include "cases.h"

#include <string.h>

#include "attention/flash.h"
#include "attention/wgmma_plan.h"
#include "gemm/problem.h"
#include "layer_norm/layer_norm.h"
#include "search/search.h"
#include "top_k/top_k.h"

/* Returns an extent near the ends of tiles, or any. */
static uint64_t random_extent(uint64_t most, struct random *r)
{
	uint64_t tile = (uint64_t)16 << random_below(r, 5);

	if (random_chance(r, 40) || tile >= most)
		return 1 + random_below(r, most);
	return tile * (1 + random_below(r, most / tile)) + random_below(r, 3) - 1;
}

/* Makes lines of any pitch, or at multiples of `unit` elements; one matrix per batch, or one for all. */
static struct view random_matrix(kops_dtype dtype, uint64_t batch, uint64_t rows, uint64_t cols, uint64_t unit,
                                 struct random *r)
{
	struct view v = {.dtype = dtype, .rank = 3, .shape = {batch, rows, cols}};
	bool by_columns = random_chance(r, 50);
	uint64_t length = by_columns ? rows : cols, lines = by_columns ? cols : rows;
	uint64_t pitch = (length + unit - 1) / unit * unit + unit * random_below(r, 3);

	v.strides[0] = (int64_t)(pitch * lines);
	v.strides[1] = by_columns ? 1 : (int64_t)pitch;
	v.strides[2] = by_columns ? (int64_t)pitch : 1;
	return v;
}

static void shape_product(struct problem *p, kops_dtype dtype, const uint64_t mnk[3], uint64_t unit,
                          struct random *r)
{
	uint64_t batch = random_chance(r, 70) ? 1 : 1 + random_below(r, 3);
	uint64_t of_a = random_chance(r, 30) ? 1 : batch, of_b = random_chance(r, 30) ? 1 : batch;

	p->args.views[0] = random_matrix(dtype, of_a, mnk[0], mnk[2], unit, r);
	p->args.views[1] = random_matrix(dtype, of_b, mnk[2], mnk[1], unit, r);
	p->args.views[GEMM_C] = random_matrix(dtype, batch, mnk[0], mnk[1], unit, r);
	p->args.params.gemm.alpha = random_chance(r, 50) ? 1 : random_unit(r);
	p->args.params.gemm.beta = random_chance(r, 50) ? 0 : random_unit(r);
	p->args.params.gemm.precision = KOPS_PRECISION_F32;
	if (dtype_kind(dtype) == DTYPE_COMPLEX)
		random_complex_params(&p->args.params.gemm, r);
	else if (random_chance(r, 40))
		random_finish(p, r);
}

/* wide: a wide range of numbers, and sums long enough for f16x3 to continue with triples of bf16. */
static bool make_f32(struct problem *p, bool wide, bool neat, struct random *r)
{
	uint64_t most = wide ? 200 : 400;
	uint64_t k = wide ? 768 + random_below(r, 70) : 64 + random_below(r, 300);
	uint64_t mnk[3] = {random_extent(most, r), random_extent(most, r), k};

	p->large = wide ? 2 : 0;
	shape_product(p, KOPS_F32, mnk, neat ? 4 : 1, r);
	return problem_complete(p, neat, true, r);
}

bool make_ordinary(struct problem *p, struct random *r)
{
	return make_f32(p, random_chance(r, 30), random_chance(r, 50), r);
}

/* Makes batches of products. unit: elements in 16 bytes. */
static bool make_batch(struct problem *p, kops_dtype dtype, uint64_t unit, struct random *r)
{
	bool neat = random_chance(r, 60);
	uint64_t mnk[3] = {random_extent(130, r), random_extent(130, r), random_extent(200, r)};

	do
		shape_product(p, dtype, mnk, neat ? unit : 1, r);
	while (p->args.views[GEMM_C].shape[0] == 1);
	return problem_complete(p, neat, true, r);
}

bool make_small(struct problem *p, struct random *r)
{
	return make_batch(p, KOPS_F32, 4, r);
}

bool make_small_f64(struct problem *p, struct random *r)
{
	return make_batch(p, KOPS_F64, 2, r);
}

bool make_small_16(struct problem *p, struct random *r)
{
	return make_batch(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, 8, r);
}

bool make_complex(struct problem *p, struct random *r)
{
	uint64_t mnk[3] = {random_extent(60, r), random_extent(60, r), random_extent(100, r)};

	shape_product(p, random_chance(r, 50) ? KOPS_C64 : KOPS_C128, mnk, 1, r);
	return problem_complete(p, false, true, r);
}

bool make_scaled_complex(struct problem *p, struct random *r)
{
	uint64_t mnk[3] = {random_extent(150, r), random_extent(150, r), 32 + random_below(r, 120)};

	shape_product(p, KOPS_C64, mnk, 1, r);
	p->args.params.gemm.alpha_imag = p->args.params.gemm.beta_imag = 0;
	return problem_complete(p, false, true, r);
}

bool make_anyhow_complex(struct problem *p, struct random *r)
{
	bool made;

	do
		made = make_anyhow(p, r);
	while (made && !gemm_is_complex(&p->args));
	return made;
}

bool make_wide(struct problem *p, struct random *r)
{
	return make_f32(p, true, random_chance(r, 50), r);
}

bool make_long_sums(struct problem *p, struct random *r)
{
	uint64_t mnk[3] = {1 + random_below(r, 40), 1 + random_below(r, 40), 300 + random_below(r, 900)};
	bool neat = random_chance(r, 50);

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	return problem_complete(p, neat, true, r);
}

bool make_ragged(struct problem *p, struct random *r)
{
	static const uint64_t sides[] = {16, 32, 64, 140, 300};
	uint64_t mnk[3] = {random_extent(sides[random_below(r, 5)], r),
	                   random_extent(sides[random_below(r, 5)], r), random_extent(100, r)};
	bool neat = random_chance(r, 30);

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	return problem_complete(p, neat, true, r);
}

bool make_aligned(struct problem *p, struct random *r)
{
	return make_f32(p, false, true, r);
}

bool make_narrow(struct problem *p, struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16, KOPS_F32};
	uint64_t mnk[3] = {random_extent(600, r), random_extent(600, r), random_extent(300, r)};

	shape_product(p, dtypes[random_below(r, 3)], mnk, 8, r);
	p->args.params.gemm.precision = KOPS_PRECISION_TF32;
	return problem_complete(p, true, true, r);
}

static bool make_many_tiles(struct problem *p, bool neat, struct random *r)
{
	uint64_t mnk[3] = {440 + random_below(r, 73), 440 + random_below(r, 73), 580 + random_below(r, 120)};

	shape_product(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, mnk, neat ? 8 : 1, r);
	if (random_chance(r, 60))
		p->args.params.gemm.beta = 0;
	return problem_complete(p, neat, true, r);
}

bool make_tiles(struct problem *p, struct random *r)
{
	return make_many_tiles(p, true, r);
}

bool make_loose_tiles(struct problem *p, struct random *r)
{
	return make_many_tiles(p, false, r);
}

bool make_splits(struct problem *p, struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16, KOPS_F32};
	uint64_t mnk[3] = {random_extent(200, r), random_extent(200, r), 900 + random_below(r, 1200)};

	shape_product(p, dtypes[random_below(r, 3)], mnk, 8, r);
	p->args.params.gemm.precision = KOPS_PRECISION_TF32;
	return problem_complete(p, true, true, r);
}

static kops_dtype random_float(struct random *r)
{
	static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};

	return dtypes[random_below(r, 3)];
}

static uint64_t round_up_to_8(uint64_t n)
{
	return (n + 7) / 8 * 8;
}

/* Makes rows that are `apart` elements apart in x and in y. */
static bool make_rows_apart(struct problem *p, uint64_t rows, uint64_t cols, uint64_t apart, kops_dtype dtype,
                            struct random *r)
{
	struct view v = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};

	v.strides[0] = (int64_t)apart;
	v.strides[1] = 1;
	p->args.views[0] = *op_output(&p->args) = v;
	op_set_defaults(&p->args);
	if (strcmp(p->args.op->name, "unary") == 0)
		p->args.params.unary.function = (enum unary_function)random_below(r, UNARY_FUNCTIONS);
	if (strcmp(p->args.op->name, "softmax") != 0)
		return problem_complete(p, true, true, r);
	p->args.params.softmax.scale = random_chance(r, 40) ? 1 : 4 * random_unit(r);
	p->args.params.softmax.log = random_chance(r, 30);
	return problem_complete(p, true, true, r);
}

/* Makes rows that begin anywhere, but alike in x and y. */
static bool make_rows(struct problem *p, uint64_t rows, uint64_t cols, kops_dtype dtype, struct random *r)
{
	uint64_t apart = random_chance(r, 30) ? round_up_to_8(cols) : cols + random_below(r, 9);

	return make_rows_apart(p, rows, cols, apart, dtype, r);
}

bool make_alike_rows(struct problem *p, struct random *r)
{
	uint64_t cols = random_extent(3000, r);

	return make_rows_apart(p, 2 + random_below(r, 12), cols, round_up_to_8(cols), random_float(r), r);
}

bool make_short_rows(struct problem *p, struct random *r)
{
	uint64_t cols = random_chance(r, 50) ? 1 + random_below(r, 9) : random_extent(3000, r);

	return make_rows(p, 1 + random_below(r, 40), cols, random_float(r), r);
}

/* Makes rows a little longer than `bytes`. */
static bool make_rows_beyond(struct problem *p, uint64_t rows, uint64_t bytes, struct random *r)
{
	kops_dtype dtype = random_float(r);

	return make_rows(p, rows, bytes / dtype_size(dtype) + 1 + random_below(r, 2000), dtype, r);
}

bool make_long_rows(struct problem *p, struct random *r)
{
	return random_chance(r, 30) ? make_rows_beyond(p, 1, 1 << 20, r)
	                            : make_rows_beyond(p, 1 + random_below(r, 5), 128 << 10, r);
}

bool make_many_rows(struct problem *p, struct random *r)
{
	return make_rows_beyond(p, 3 + random_below(r, 8), 128 << 10, r);
}

/* Returns a type that reduce takes. */
static kops_dtype random_real(struct random *r)
{
	return random_chance(r, 25) ? KOPS_F64 : random_float(r);
}

/*
 * Makes up to several tiles of rows, which follow each other without gaps, or are all aligned alike to 16
 * bytes, or neither.
 */
static bool make_rows_for(kops_reduction kind, struct problem *p, struct random *r)
{
	kops_dtype dtype = random_real(r);
	uint64_t cols = random_chance(r, 50) ? 1 + random_below(r, 40) : random_extent(1100, r);

	if (random_chance(r, 30))
		cols = (cols + 7) / 8 * 8; /* whole vectors, wherever x begins */
	uint64_t rows = 1 + random_below(r, random_chance(r, 30) ? 40 : 1 + 60000 / cols);
	struct view x = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};
	struct view y = {.dtype = dtype, .rank = 1, .shape = {rows}, .strides = {1}};

	x.strides[0] = (int64_t)(random_chance(r, 50) ? cols : (cols + 7) / 8 * 8 + random_below(r, 2));
	x.strides[1] = 1;
	if (strcmp(p->args.op->name, "arg_reduce") == 0) {
		y.dtype = KOPS_I32;
		p->args.params.arg_reduce.kind = kind == KOPS_MIN ? ARG_MIN : ARG_MAX;
	} else {
		p->args.params.reduce.kind = kind;
	}
	p->args.views[0] = x;
	p->args.views[1] = y;
	return problem_complete(p, random_chance(r, 50), true, r);
}

bool make_reduced_rows(struct problem *p, struct random *r)
{
	return make_rows_for((kops_reduction)random_below(r, KOPS_PROD + 1), p, r);
}

bool make_largest_rows(struct problem *p, struct random *r)
{
	p->huge = true;
	return make_rows_for(KOPS_MEAN, p, r);
}

bool make_largest_columns(struct problem *p, struct random *r)
{
	uint64_t rows = random_extent(200, r), cols = random_extent(300, r);
	kops_dtype dtype = random_real(r);

	p->huge = true;
	p->args.views[0] = (struct view){
	    .dtype = dtype, .rank = 2, .shape = {rows, cols}, .strides = {1, (int64_t)(rows + 7) / 8 * 8}};
	p->args.views[1] = (struct view){.dtype = dtype, .rank = 1, .shape = {rows}, .strides = {1}};
	p->args.params.reduce.kind = KOPS_MEAN;
	return problem_complete(p, random_chance(r, 50), true, r);
}

/* Makes a residual now and then, with or without the sum. */
static void make_residual(struct problem *p, const struct view *like, struct random *r)
{
	if (random_chance(r, 50))
		return;
	p->args.views[LAYER_NORM_RESIDUAL] = *like;
	if (random_chance(r, 60))
		p->args.views[LAYER_NORM_SUM] = *like;
}

bool make_runs(struct problem *p, struct random *r)
{
	const struct op *op = p->args.op;
	kops_dtype dtype = random_real(r);
	uint64_t n = random_extent(6000, r);

	op_set_defaults(&p->args);
	for (unsigned i = 0; i < op->n_attributes; i++)
		if (op->attributes[i].type == ATTRIBUTE_CHOICE)
			op_set_attribute(&p->args, i, (double)random_below(r, op->attributes[i].n_choices));
	for (unsigned v = 0; v < op->n_operands; v++)
		p->args.views[v] = (struct view){.dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
	return problem_complete(p, random_chance(r, 70), true, r);
}

/* Makes weight and bias, or one of them, or neither. */
static void make_vectors(struct problem *p, uint64_t cols, kops_dtype dtype, struct random *r)
{
	for (unsigned v = LAYER_NORM_WEIGHT; v <= LAYER_NORM_BIAS; v++)
		if (random_chance(r, 70))
			p->args.views[v] =
			    (struct view){.dtype = dtype, .rank = 1, .shape = {cols}, .strides = {1}};
}

bool make_normed_rows(struct problem *p, struct random *r)
{
	kops_dtype dtype = random_real(r);
	uint64_t longest = LAYER_NORM_KEPT_BYTES * LAYER_NORM_KEPT_THREADS / dtype_size(dtype) - 7;
	uint64_t cols = random_extent(random_chance(r, 50) ? 300 : longest, r);
	uint64_t rows = 1 + random_below(r, cols < 300 ? 60 : 3);
	struct view v = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};

	if (random_chance(r, 60))
		v.shape[1] = cols = round_up_to_8(cols);
	v.strides[0] = (int64_t)(cols + (random_chance(r, 50) ? 0 : random_below(r, 9)));
	v.strides[1] = 1;
	p->args.views[LAYER_NORM_X] = p->args.views[LAYER_NORM_Y] = v;
	make_vectors(p, cols, dtype, r);
	make_residual(p, &v, r);
	op_set_attribute(&p->args, LAYER_NORM_EPS, random_chance(r, 30) ? 0 : 1e-5);
	return problem_complete(p, random_chance(r, 60), true, r);
}

/* Makes rows of any length: shorter than a piece, or of several blocks. aligned: each index and row of y begins
 * at a multiple of 16 bytes, or equally far behind one. */
static bool make_rows_of_table(struct problem *p, bool aligned, struct random *r)
{
	kops_dtype dtype = (kops_dtype)(DTYPE_FIRST + random_below(r, DTYPE_COUNT));
	uint64_t cols = random_extent(random_chance(r, 70) ? 300 : 9000, r);
	uint64_t unit = aligned || random_chance(r, 60) ? 16 / dtype_size(dtype) : 1;
	uint64_t rows[] = {1 + random_below(r, 60), 1 + random_below(r, 60)};

	for (unsigned v = 0; v < 3; v += 2) {
		uint64_t apart = (cols + unit - 1) / unit * unit + unit * random_below(r, 3);
		p->args.views[v] = (struct view){
		    .dtype = dtype, .rank = 2, .shape = {rows[v / 2], cols}, .strides = {(int64_t)apart, 1}};
	}
	p->args.views[1] =
	    (struct view){.dtype = KOPS_I32, .rank = 1, .shape = {rows[1]}, .strides = {aligned ? 4 : 1}};
	return problem_complete(p, random_chance(r, 60), true, r);
}

bool make_table(struct problem *p, struct random *r)
{
	return make_rows_of_table(p, false, r);
}

bool make_aligned_table(struct problem *p, struct random *r)
{
	return make_rows_of_table(p, true, r);
}

static uint64_t last_extent(const struct view *view)
{
	return view->shape[view->rank - 1];
}

/* Makes shapes of attention that has results: mapped, those that tensor maps and wgmma take. */
static void shape_attention(struct problem *p, bool mapped, struct random *r)
{
	uint64_t most = mapped ? WGMMA_DEPTH_MAX : FLASH_DEPTH_MAX;
	struct view *views = p->args.views;
	double *scale = &p->args.params.plain.numbers[ATTENTION_SCALE];

	do
		shaper_of(p->args.op)->shape(p, r);
	while (last_extent(&views[ATTENTION_Q]) > most || last_extent(&views[ATTENTION_V]) > most ||
	       (mapped && last_extent(&views[ATTENTION_V]) % 8 != 0) ||
	       view_elements(op_output_const(&p->args)) == 0);
	if (!mapped)
		return;
	views[ATTENTION_MASK] = (struct view){0};
	*scale = *scale < 0 ? -*scale : *scale;
}

/* Makes rows of 16-bit elements that begin at multiples of 16 bytes. */
static bool make_rows_of_attention(struct problem *p, bool mapped, struct random *r)
{
	kops_dtype dtype = random_chance(r, 50) ? KOPS_F16 : KOPS_BF16;

	shape_attention(p, mapped, r);
	if (!view_is_absent(&p->args.views[ATTENTION_LSE]))
		p->args.views[ATTENTION_LSE].dtype = KOPS_F32;
	for (unsigned i = ATTENTION_Q; i <= ATTENTION_O; i++) {
		struct view *view = &p->args.views[i];
		int64_t apart = 1;

		if (view_is_absent(view) || i == ATTENTION_LENGTHS)
			continue;
		view->dtype = dtype;
		for (uint32_t d = view->rank; i != ATTENTION_MASK && d-- > 0;) {
			view->strides[d] = apart;
			apart *= (int64_t)view->shape[d];
			if (d + 1 == view->rank)
				apart = (int64_t)round_up_to_8(view->shape[d]) + (random_chance(r, 50) ? 0 : 8);
		}
	}
	return problem_complete(p, true, true, r);
}

bool make_attention(struct problem *p, struct random *r)
{
	return make_rows_of_attention(p, false, r);
}

bool make_mapped_attention(struct problem *p, struct random *r)
{
	return make_rows_of_attention(p, true, r);
}

/* Makes rows of a warp, of a block and of several, with few of them wanted, many or all. */
bool make_selected(struct problem *p, struct random *r)
{
	static const uint64_t most[] = {40, 300, 4096, 9000, 70000};
	uint64_t cols = random_extent(most[random_below(r, 5)], r),
	         rows = 1 + random_below(r, 1 + 20000 / cols);
	uint64_t all = cols < TOP_K_MAX ? cols : TOP_K_MAX, few = all < 32 ? all : 32;
	uint64_t k = 1 + random_below(r, random_chance(r, 50) ? few : all);
	struct view x = {.dtype = random_real(r), .rank = 2, .shape = {rows, cols}}, *of = p->args.views;

	x.strides[0] = (int64_t)(random_chance(r, 50) ? cols : round_up_to_8(cols) + random_below(r, 2));
	x.strides[1] = 1;
	of[TOP_K_X] = of[TOP_K_VALUES] = x;
	of[TOP_K_VALUES].shape[1] = k;
	view_make_dense(&of[TOP_K_VALUES]);
	if (random_chance(r, 80)) {
		of[TOP_K_INDICES] = of[TOP_K_VALUES];
		of[TOP_K_INDICES].dtype = KOPS_I32;
	}
	op_set_attribute(&p->args, 0, (double)k);
	for (unsigned i = 1; i < p->args.op->n_attributes; i++)
		op_set_attribute(&p->args, i, (double)random_below(r, 2));
	return problem_complete(p, random_chance(r, 50), true, r);
}

bool make_searched(struct problem *p, struct random *r)
{
	uint64_t queries = 1 + random_below(r, 20), rows = 1 + random_below(r, 6000),
	         columns = random_chance(r, 20) ? 1000 + random_below(r, 100) : 1 + random_below(r, 70),
	         k = 1 + random_below(r, random_chance(r, 60) ? 32 : SEARCH_MAX);
	struct view *of = p->args.views;

	rows = rows > 60000 / columns ? 60000 / columns : rows;
	of[SEARCH_QUERIES] = (struct view){.dtype = random_float(r), .rank = 2, .shape = {queries, columns}};
	of[SEARCH_BASE] = of[SEARCH_QUERIES];
	of[SEARCH_BASE].shape[0] = rows;
	of[SEARCH_VALUES] = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {queries, k}};
	of[SEARCH_INDICES] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {queries, k}};
	for (unsigned v = SEARCH_QUERIES; v <= SEARCH_INDICES; v++)
		if (v != SEARCH_FILTER)
			view_make_dense(&of[v]);
	of[SEARCH_BASE].strides[0] =
	    (int64_t)(random_chance(r, 60) ? round_up_to_8(columns) : columns + random_below(r, 3));
	op_set_attribute(&p->args, 0, (double)k);
	op_set_attribute(&p->args, 1, (double)random_below(r, 3));
	return problem_complete(p, random_chance(r, 60), true, r);
}

static bool make_search(struct problem *p, kops_dtype dtype, struct random *r)
{
	uint64_t queries = random_extent(random_chance(r, 50) ? 70 : 400, r), rows = 1 + random_below(r, 3000),
	         columns = random_extent(300, r), k = 1 + random_below(r, random_chance(r, 60) ? 16 : 64);
	struct view *of = p->args.views;

	rows = rows > 40000 / columns ? 40000 / columns : rows;
	of[SEARCH_QUERIES] = (struct view){.dtype = dtype, .rank = 2, .shape = {queries, columns}};
	of[SEARCH_BASE] = of[SEARCH_QUERIES];
	of[SEARCH_BASE].shape[0] = rows;
	of[SEARCH_VALUES] = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {queries, k}};
	of[SEARCH_INDICES] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {queries, k}};
	if (random_chance(r, 40))
		of[SEARCH_FILTER] = (struct view){
		    .dtype = KOPS_I32, .rank = 2, .shape = {queries, rows / 32 + (rows % 32 != 0)}};
	for (unsigned v = SEARCH_QUERIES; v <= SEARCH_INDICES; v++)
		if (!view_is_absent(&of[v]))
			view_make_dense(&of[v]);
	of[SEARCH_QUERIES].strides[0] = (int64_t)round_up_to_8(columns);
	of[SEARCH_BASE].strides[0] = (int64_t)(round_up_to_8(columns) + 8 * random_below(r, 2));
	op_set_attribute(&p->args, 0, (double)k);
	op_set_attribute(&p->args, 1, (double)random_below(r, 3));
	return problem_complete(p, random_chance(r, 60), true, r);
}

bool make_mapped_search(struct problem *p, struct random *r)
{
	return make_search(p, random_chance(r, 50) ? KOPS_F16 : KOPS_BF16, r);
}

bool make_refined_search(struct problem *p, struct random *r)
{
	return make_search(p, KOPS_F32, r);
}

bool make_anyhow(struct problem *p, struct random *r)
{
	const struct op *op = p->args.op;
	bool made;

	do {
		problem_free(p);
		made = problem_make(p, op, 0, r);
	} while (made && (view_elements(op_output_const(&p->args)) == 0 || view_is_empty(&p->args.views[0])));
	return made;
}

/* Makes attention as the kernel `f16x3` takes it: of f32, without a mask. */
bool make_pairs_of_attention(struct problem *p, struct random *r)
{
	const struct view *views = p->args.views;
	bool made;

	do
		made = make_anyhow(p, r);
	while (made && (views[ATTENTION_Q].dtype != KOPS_F32 || !view_is_absent(&views[ATTENTION_MASK])));
	return made;
}
