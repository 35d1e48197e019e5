/*
 * product.c: copies the operands to a lane's memory, runs the job, and copies the result back.
 *
 * The caller's c is written only when the job succeeded. kops is row-major, so it computes
 * c' = op(b)' * op(a)', where the transposed matrices are the same memory seen by rows.
 */
#include "product.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lane.h"
#include "settings.h"
#include "side.h"

#define PLACE_BYTES  256
#define LINE_BYTES   64 /* long columns begin at multiples of it: some kernels read 16 bytes at once */
#define LONG_BYTES   1024
#define BLOCKS_MAX   8 /* of a triangle: the most that is computed in vain is an eighth */
#define BLOCK_COLS   256
#define LIMIT_MS     2000
#define FLOPS_PER_MS 1e6 /* of a slow core: a job that takes longer than it would is given up */

/* ---- What kopsd may compute ---- */

static int64_t rows_of_a(const struct product *p)
{
	return p->trans_a ? p->k : p->m;
}

static int64_t rows_of_b(const struct product *p)
{
	return p->trans_b ? p->n : p->k;
}

/* One matrix is both, as in syrk: it is copied once. */
static bool b_is_a(const struct product *p)
{
	return p->batch == 0 && p->a.data == p->b.data && p->a.ld == p->b.ld &&
	       p->a.triangle == p->b.triangle && rows_of_a(p) == rows_of_b(p) &&
	       (p->trans_a ? p->m : p->k) == (p->trans_b ? p->k : p->n);
}

/* The rest is the next BLAS's, errors included. */
static bool is_usual(const struct product *p)
{
	return !p->invalid && p->batch >= 0 && p->m > 0 && p->n > 0 && p->k > 0 && p->a.ld >= rows_of_a(p) &&
	       p->b.ld >= rows_of_b(p) && p->c.ld >= p->m && p->alpha != 0 && isfinite(p->alpha) &&
	       isfinite(p->beta);
}

static int64_t count_of(const struct product *p)
{
	return p->batch > 0 ? p->batch : 1;
}

static double flops_of(const struct product *p)
{
	double flops = 2.0 * (double)count_of(p) * (double)p->m * (double)p->n * (double)p->k;
	return p->c.triangle == WHOLE ? flops : flops / 2;
}

/* Both ways. */
static double bytes_of(const struct product *p)
{
	double m = (double)p->m, n = (double)p->n, k = (double)p->k;
	double c = p->c.triangle == WHOLE ? m * n : m * n / 2;
	double b = b_is_a(p) ? 0 : k * n;
	return (double)count_of(p) * (double)kops_dtype_size(p->dtype) *
	       (m * k + b + c * (p->beta == 0 ? 1 : 2));
}

/* ---- Where it lies in the lane's memory ---- */

struct place {
	uint64_t rows, cols, ld; /* elements */
	uint64_t offset;         /* bytes; those of a batch follow each other */
};

struct layout {
	struct place a, b, c;
	uint64_t bytes;
};

/* Takes the next bytes; false if they are more than there can be. */
static bool lay(struct layout *l, const struct product *p, int64_t rows, int64_t cols, struct place *place)
{
	uint64_t element = kops_dtype_size(p->dtype), line = LINE_BYTES / element, bytes;
	place->rows = (uint64_t)rows;
	place->cols = (uint64_t)cols;
	place->ld = place->rows * element < LONG_BYTES ? place->rows : (place->rows + line - 1) / line * line;
	place->offset = l->bytes;
	if (__builtin_mul_overflow(place->ld, place->cols, &bytes) ||
	    __builtin_mul_overflow(bytes, (uint64_t)count_of(p), &bytes) ||
	    __builtin_mul_overflow(bytes, element, &bytes) || bytes > INT64_MAX - PLACE_BYTES ||
	    __builtin_add_overflow(l->bytes, bytes, &l->bytes))
		return false;
	l->bytes = (l->bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
	return l->bytes <= INT64_MAX;
}

static bool lay_all(const struct product *p, struct layout *ret)
{
	*ret = (struct layout){0};
	if (!lay(ret, p, rows_of_a(p), p->trans_a ? p->m : p->k, &ret->a))
		return false;
	ret->b = ret->a;
	if (!b_is_a(p) && !lay(ret, p, rows_of_b(p), p->trans_b ? p->k : p->n, &ret->b))
		return false;
	return lay(ret, p, p->m, p->n, &ret->c);
}

/* ---- Copies ---- */

static uint64_t step_bytes(const struct product *p, const struct place *place)
{
	return place->ld * place->cols * kops_dtype_size(p->dtype);
}

static const void *matrix(const struct operand *operand, int64_t i)
{
	return operand->each ? operand->each[i] : operand->data;
}

static void copy_one_in(const struct product *p, int64_t i, const struct operand *from, const struct place *to,
                        char *memory)
{
	const struct copy copy = {.to = memory + to->offset + (uint64_t)i * step_bytes(p, to),
	                          .from = matrix(from, i),
	                          .to_ld = to->ld,
	                          .from_ld = (uint64_t)from->ld,
	                          .rows = to->rows,
	                          .cols = to->cols,
	                          .element = kops_dtype_size(p->dtype)};
	if (from->triangle == WHOLE || from == &p->c)
		copy_matrix(&copy, from->triangle);
	else
		copy_symmetric(&copy, from->triangle);
}

static void copy_in(const struct product *p, const struct operand *from, const struct place *to, char *memory)
{
	for (int64_t i = 0; i < count_of(p); i++)
		copy_one_in(p, i, from, to, memory);
}

/* The caller's c is const here only because operands are. */
static void copy_one_out(const struct product *p, int64_t i, const struct place *from, const char *memory)
{
	const struct copy copy = {.to = (char *)matrix(&p->c, i),
	                          .from = memory + from->offset + (uint64_t)i * step_bytes(p, from),
	                          .to_ld = (uint64_t)p->c.ld,
	                          .from_ld = from->ld,
	                          .rows = from->rows,
	                          .cols = from->cols,
	                          .element = kops_dtype_size(p->dtype)};
	copy_matrix(&copy, p->c.triangle);
}

static void copy_out(const struct product *p, const struct place *from, const char *memory)
{
	for (int64_t i = 0; i < count_of(p); i++)
		copy_one_out(p, i, from, memory);
}

/* ---- The job ---- */

/* A part of a matrix from element `begin`, by rows of the transposed one; `across`: by its columns. */
static kops_view view_of(const struct product *p, kops_buffer *buffer, const struct place *place,
                         uint64_t begin, uint64_t rows, uint64_t cols, bool across)
{
	unsigned first = p->batch > 0; /* the axis of the rows */
	kops_view view = {.buffer = buffer, .dtype = p->dtype, .rank = first + 2};
	view.offset = place->offset + begin * kops_dtype_size(p->dtype);
	view.shape[0] = (uint64_t)p->batch;
	view.strides[0] = (int64_t)(place->ld * place->cols);
	view.shape[first] = rows;
	view.shape[first + 1] = cols;
	view.strides[first] = across ? 1 : (int64_t)place->ld;
	view.strides[first + 1] = across ? (int64_t)place->ld : 1;
	return view;
}

/* Rows i0 to i1 and columns j0 to j1 of c. */
static int add_block(kops_job *job, kops_buffer *buffer, const struct product *p, const struct layout *l,
                     uint64_t i0, uint64_t i1, uint64_t j0, uint64_t j1)
{
	uint64_t k = (uint64_t)p->k;
	kops_view b = view_of(p, buffer, &l->b, p->trans_b ? j0 : j0 * l->b.ld, j1 - j0, k, p->trans_b);
	kops_view a = view_of(p, buffer, &l->a, p->trans_a ? i0 * l->a.ld : i0, k, i1 - i0, p->trans_a);
	kops_view c = view_of(p, buffer, &l->c, j0 * l->c.ld + i0, j1 - j0, i1 - i0, false);
	return kops_job_gemm(job, p->alpha, b, a, p->beta, c, KOPS_PRECISION_F32, NULL);
}

static int add_triangle(kops_job *job, kops_buffer *buffer, const struct product *p, const struct layout *l)
{
	uint64_t n = (uint64_t)p->n, blocks = (n + BLOCK_COLS - 1) / BLOCK_COLS;
	int status = 0;
	if (blocks > BLOCKS_MAX)
		blocks = BLOCKS_MAX;
	for (uint64_t i = 0; i < blocks && status == 0; i++) {
		uint64_t j0 = n / blocks * i, j1 = i + 1 == blocks ? n : n / blocks * (i + 1);
		bool upper = p->c.triangle == UPPER;
		status = add_block(job, buffer, p, l, upper ? 0 : j0, upper ? j1 : n, j0, j1);
	}
	return status;
}

static void make_key(const struct product *p, struct job_key *ret_key)
{
	memset(ret_key, 0, sizeof *ret_key);
	ret_key->batch = (uint64_t)p->batch;
	ret_key->m = (uint64_t)p->m;
	ret_key->n = (uint64_t)p->n;
	ret_key->k = (uint64_t)p->k;
	ret_key->alpha = p->alpha;
	ret_key->beta = p->beta;
	ret_key->dtype = p->dtype;
	ret_key->shape = (uint32_t)(p->trans_a | p->trans_b << 1 | b_is_a(p) << 2) | (uint32_t)p->c.triangle
	                                                                                 << 3;
}

static int run_job(struct lane *lane, kops_buffer *buffer, const struct product *p, const struct layout *l)
{
	struct job_key key;
	bool is_new;
	make_key(p, &key);
	kops_job *job = lane_job(lane, &key, &is_new);
	if (!job)
		return KOPS_E_NOMEM;
	int status = 0;
	if (is_new && p->c.triangle == WHOLE)
		status = add_block(job, buffer, p, l, 0, (uint64_t)p->m, 0, (uint64_t)p->n);
	else if (is_new)
		status = add_triangle(job, buffer, p, l);
	if (status < 0)
		return lane_drop(lane, job, status);
	double limit_ms = LIMIT_MS + flops_of(p) / FLOPS_PER_MS;
	return lane_run(lane, job, limit_ms < INT32_MAX ? (int)limit_ms : INT32_MAX);
}

static bool compute_in(struct lane *lane, const struct product *p)
{
	struct layout layout;
	if (!lay_all(p, &layout))
		return false;
	kops_buffer *buffer = lane_memory(lane, layout.bytes);
	char *memory = buffer ? kops_data(buffer) : NULL;
	if (!memory)
		return false;
	copy_in(p, &p->a, &layout.a, memory);
	if (!b_is_a(p))
		copy_in(p, &p->b, &layout.b, memory);
	if (p->beta != 0)
		copy_in(p, &p->c, &layout.c, memory);
	if (run_job(lane, buffer, p, &layout) < 0)
		return false;
	copy_out(p, &layout.c, memory);
	return true;
}

/* ---- The choice ---- */

static void describe(const struct product *p, struct call *call)
{
	char batch[32] = "";
	if (p->batch > 0)
		snprintf(batch, sizeof batch, "%lld times ", (long long)p->batch);
	snprintf(call->what, sizeof call->what, "%s%lld x %lld x %lld", batch, (long long)p->m, (long long)p->n,
	         (long long)p->k);
}

/* The outcome if it is not kopsd's. */
static bool is_wanted(const struct product *p, struct call *call)
{
	const struct settings *settings = settings_get();
	if (settings->verbose > 1)
		describe(p, call);
	call->outcome = OUTCOME_UNUSUAL;
	if (!is_usual(p))
		return false;
	call->flops = flops_of(p);
	call->outcome = OUTCOME_SMALL;
	if (call->flops / 2 < settings->threshold)
		return false;
	call->outcome = OUTCOME_SLOWER;
	if (settings->automatic)
		call->side = side_of(p->dtype == KOPS_F64, call->flops, bytes_of(p));
	return !call->side || side_choose(call->side);
}

bool product_is_wanted(const struct product *p, struct call *call)
{
	bool wanted = is_wanted(p, call) && lane_may_be_had(&call->outcome);
	call->side = NULL;
	return wanted;
}

bool product_compute(const struct product *p, struct call *call)
{
	if (!is_wanted(p, call))
		return false;
	struct lane *lane = lane_take(settings_get()->automatic, &call->outcome);
	if (!lane) {
		call->side = NULL;
		return false;
	}
	bool computed = compute_in(lane, p);
	call->outcome = computed ? OUTCOME_KOPSD : OUTCOME_FAILED;
	lane_give(lane);
	return computed;
}
