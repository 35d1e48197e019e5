/* system.c: the matrices of a system in a channel's memory, and the jobs there. */
#include "lapack/system.h"

#include <complex.h>
#include <stdio.h>
#include <string.h>

#include "channel.h"
#include "compute.h"
#include "copy.h"
#include "guard.h"
#include "settings.h"

#define ALIGN_BYTES 256
#define OF_SYSTEM   (UINT32_C(1) << 31) /* in the shape of a job_key: no product's has it */

/* ---- What a call is ---- */

static bool is_complex(const struct system *s)
{
	return s->dtype == KOPS_C64 || s->dtype == KOPS_C128;
}

static int64_t n_pivots(const struct system *s)
{
	return s->m < s->n ? s->m : s->n;
}

/* Of what is solved: the identity's, for an inverse. */
static int64_t columns_of(const struct system *s)
{
	return s->inverts ? s->n : s->columns;
}

/* Which elements of a are read and written. */
static enum triangle triangle_of(const struct system *s)
{
	return s->method == BY_LU ? WHOLE : s->upper ? UPPER : LOWER;
}

static int64_t pivot_at(const struct system *s, int64_t i)
{
	return s->pivot_bytes == 4 ? ((const int32_t *)s->pivots)[i] : ((const int64_t *)s->pivots)[i];
}

static void set_pivot(const struct system *s, int64_t i, int32_t value)
{
	if (s->pivot_bytes == 4)
		((int32_t *)s->pivots)[i] = value;
	else
		((int64_t *)s->pivots)[i] = value;
}

/* Others are not LAPACK's. */
static bool has_valid_pivots(const struct system *s)
{
	for (int64_t i = 0; i < s->n; i++)
		if (pivot_at(s, i) < 1 || pivot_at(s, i) > s->n)
			return false;
	return true;
}

static bool is_zero(const struct system *s, int64_t i)
{
	int64_t at = i + i * s->lda;
	if (s->dtype == KOPS_F32)
		return ((const float *)s->a)[at] == 0;
	if (s->dtype == KOPS_F64)
		return ((const double *)s->a)[at] == 0;
	if (s->dtype == KOPS_C64)
		return ((const float complex *)s->a)[at] == 0;
	return ((const double complex *)s->a)[at] == 0;
}

/* Triangles alone: LAPACK looks for such an element first. */
static bool has_zero_on_diagonal(const struct system *s)
{
	for (int64_t i = 0; i < s->n; i++)
		if (is_zero(s, i))
			return true;
	return false;
}

/* Returns true if kopsd can compute it. The next library gets the others, errors included. */
static bool is_usual(const struct system *s)
{
	return !s->invalid && s->m > 0 && s->n > 0 && s->lda >= s->m &&
	       (!s->solves || (s->columns > 0 && s->ldb >= s->n)) &&
	       (s->factors || s->method != BY_LU || has_valid_pivots(s));
}

static double multiplications_of(const struct system *s)
{
	double m = (double)s->m, n = (double)s->n, less = m < n ? m : n;
	double of_lu = less * less * (m + n - less) / 2 - less * less * less / 6;
	double factoring = !s->factors ? 0 : s->method == BY_LU ? of_lu : n * n * n / 6;
	return factoring + n * n * (double)columns_of(s) * (s->method == BY_TRIANGLE ? 0.5 : 1);
}

static double flops_of(const struct system *s)
{
	return multiplications_of(s) * (is_complex(s) ? 8 : 2);
}

/* Both ways. */
static double bytes_of(const struct system *s)
{
	double m = (double)s->m, n = (double)s->n;
	double a = m * n * (s->method == BY_LU ? 1 : 0.5) * (s->factors || s->inverts ? 2 : 1);
	return (double)kops_dtype_size(s->dtype) * (a + 2 * n * (double)s->columns);
}

static void describe(const struct system *s, struct call *call)
{
	int length = snprintf(call->what, sizeof call->what, "%lld x %lld", (long long)s->m, (long long)s->n);
	if (s->solves)
		snprintf(call->what + length, sizeof call->what - (size_t)length, ", %lld columns",
		         (long long)s->columns);
}

/* ---- Its memory ---- */

struct region {
	uint64_t offset, ld; /* bytes; elements */
};

struct work {
	const struct system *system;
	struct channel *channel;
	kops_buffer *buffer;
	char *memory;
	struct region a, b;
	uint64_t pivots, info, bytes; /* offsets; all of the memory */
};

static bool lay(struct work *w, uint64_t rows, uint64_t cols, size_t element, struct region *ret)
{
	uint64_t line = ALIGN_BYTES / element, bytes;
	ret->ld = rows < 4 * line ? rows : (rows + line - 1) / line * line;
	ret->offset = w->bytes;
	if (__builtin_mul_overflow(ret->ld, cols, &bytes) || __builtin_mul_overflow(bytes, element, &bytes) ||
	    bytes > INT64_MAX - ALIGN_BYTES || __builtin_add_overflow(w->bytes, bytes, &w->bytes))
		return false;
	w->bytes = (w->bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	return w->bytes <= INT64_MAX;
}

static bool lay_out(struct work *w)
{
	const struct system *s = w->system;
	struct region pivots, info;
	size_t element = kops_dtype_size(s->dtype);
	bool fits = lay(w, (uint64_t)s->m, (uint64_t)s->n, element, &w->a) &&
	            lay(w, (uint64_t)s->n, (uint64_t)columns_of(s), element, &w->b) &&
	            lay(w, (uint64_t)n_pivots(s), 1, sizeof(int32_t), &pivots) &&
	            lay(w, 1, 1, sizeof(int32_t), &info);
	w->pivots = pivots.offset;
	w->info = info.offset;
	return fits;
}

static struct copy copy_of(const struct work *w, const struct region *to, int64_t rows, int64_t cols,
                           const void *from, int64_t ld)
{
	return (struct copy){.to = w->memory + to->offset,
	                     .from = from,
	                     .to_ld = to->ld,
	                     .from_ld = (uint64_t)ld,
	                     .rows = (uint64_t)rows,
	                     .cols = (uint64_t)cols,
	                     .element = kops_dtype_size(w->system->dtype)};
}

/* The other way. */
static struct copy back(const struct copy *copy)
{
	struct copy result = *copy;
	result.to = (char *)(uintptr_t)copy->from;
	result.from = copy->to;
	result.to_ld = copy->from_ld;
	result.from_ld = copy->to_ld;
	return result;
}

static char *column_of_b(const struct work *w, uint64_t j)
{
	return w->memory + w->b.offset + j * w->b.ld * kops_dtype_size(w->system->dtype);
}

static void make_column_of_identity(void *ctx, uint64_t j)
{
	static const float f32[] = {1, 0};
	static const double f64[] = {1, 0};
	const struct work *w = ctx;
	const struct system *s = w->system;
	size_t element = kops_dtype_size(s->dtype);
	bool is_double = s->dtype == KOPS_F64 || s->dtype == KOPS_C128;
	char *column = column_of_b(w, j);
	memset(column, 0, (size_t)s->n * element);
	memcpy(column + j * element, is_double ? (const void *)f64 : (const void *)f32, element);
}

static void load(struct work *w)
{
	const struct system *s = w->system;
	const struct copy a = copy_of(w, &w->a, s->m, s->n, s->a, s->lda);
	copy_matrix(&a, triangle_of(s));
	if (s->inverts) {
		copy_each((uint64_t)s->n, (uint64_t)s->n * a.element, make_column_of_identity, w);
	} else if (s->solves) {
		const struct copy b = copy_of(w, &w->b, s->n, s->columns, s->b, s->ldb);
		copy_matrix(&b, WHOLE);
	}
}

static void store(struct work *w)
{
	const struct system *s = w->system;
	const struct copy a = copy_of(w, s->inverts ? &w->b : &w->a, s->m, s->n, s->a, s->lda);
	if (s->factors || s->inverts) {
		const struct copy a_back = back(&a);
		copy_matrix(&a_back, triangle_of(s));
	}
	if (s->solves) {
		const struct copy b = copy_of(w, &w->b, s->n, s->columns, s->b, s->ldb), b_back = back(&b);
		copy_matrix(&b_back, WHOLE);
	}
	for (int64_t i = 0; s->factors && s->method == BY_LU && i < n_pivots(s); i++)
		set_pivot(s, i, ((const int32_t *)(const void *)(w->memory + w->pivots))[i] + 1);
}

/* ---- Exchanges of b's rows ---- */

/* From 0 on; kopsd's or the caller's. */
static int64_t other_row(const struct work *w, int64_t i)
{
	const struct system *s = w->system;
	return s->factors ? ((const int32_t *)(const void *)(w->memory + w->pivots))[i] : pivot_at(s, i) - 1;
}

static void exchange(char *x, char *y, size_t element)
{
	char old[16];
	memcpy(old, x, element);
	memcpy(x, y, element);
	memcpy(y, old, element);
}

static void exchange_forward(void *ctx, uint64_t j)
{
	const struct work *w = ctx;
	size_t element = kops_dtype_size(w->system->dtype);
	char *column = column_of_b(w, j);
	for (int64_t i = 0; i < w->system->n; i++)
		exchange(column + (size_t)i * element, column + (size_t)other_row(w, i) * element, element);
}

static void exchange_backward(void *ctx, uint64_t j)
{
	const struct work *w = ctx;
	size_t element = kops_dtype_size(w->system->dtype);
	char *column = column_of_b(w, j);
	for (int64_t i = w->system->n - 1; i >= 0; i--)
		exchange(column + (size_t)i * element, column + (size_t)other_row(w, i) * element, element);
}

static void exchange_rows(struct work *w, void (*exchange_column)(void *ctx, uint64_t j))
{
	const struct system *s = w->system;
	copy_each((uint64_t)columns_of(s), (uint64_t)s->n * kops_dtype_size(s->dtype), exchange_column, w);
}

/* ---- Its jobs ---- */

static kops_view matrix_at(const struct work *w, const struct region *region, int64_t rows, int64_t cols)
{
	return (kops_view){.buffer = w->buffer,
	                   .dtype = w->system->dtype,
	                   .rank = 2,
	                   .offset = region->offset,
	                   .shape = {(uint64_t)rows, (uint64_t)cols},
	                   .strides = {1, (int64_t)region->ld}};
}

static kops_view integers_at(const struct work *w, uint64_t offset, int64_t n)
{
	return (kops_view){.buffer = w->buffer,
	                   .dtype = KOPS_I32,
	                   .rank = 1,
	                   .offset = offset,
	                   .shape = {(uint64_t)n},
	                   .strides = {1}};
}

static int add_factorization(const struct work *w, kops_job *job)
{
	const struct system *s = w->system;
	kops_view a = matrix_at(w, &w->a, s->m, s->n), info = integers_at(w, w->info, 1);
	if (s->method == BY_LU)
		return kops_job_lu(job, a, a, integers_at(w, w->pivots, n_pivots(s)), info, NULL);
	return kops_job_cholesky(job, a, a, info, s->upper, true, NULL);
}

/* A triangle of a, or its transpose. */
struct half {
	bool upper, unit, trans;
};

static int add_solution(const struct work *w, kops_job *job, struct half half)
{
	const struct system *s = w->system;
	kops_view a = matrix_at(w, &w->a, s->n, s->n), b = matrix_at(w, &w->b, s->n, columns_of(s));
	bool conjugates = half.trans && (s->method == BY_CHOLESKY || s->conj);
	if (half.trans) {
		a.strides[0] = a.strides[1];
		a.strides[1] = 1;
	}
	const kops_operand operands[] = {
	    {.name = "a", .view = a}, {.name = "b", .view = b}, {.name = "x", .view = b}};
	const kops_attribute attributes[] = {{.name = "upper", .value = half.upper != half.trans},
	                                     {.name = "unit", .value = half.unit},
	                                     {.name = "conj_a", .value = conjugates}};
	return kops_job_op(job, "triangular_solve", operands, sizeof operands / sizeof operands[0], attributes,
	                   sizeof attributes / sizeof attributes[0], NULL);
}

/* x = b by one triangle or two: of a = L * U, or of a = L * LH or UH * U. */
static int add_solutions(const struct work *w, kops_job *job)
{
	const struct system *s = w->system;
	struct half first = {.upper = s->upper, .unit = s->unit, .trans = s->trans}, second;
	int status;
	if (s->method == BY_TRIANGLE)
		return add_solution(w, job, first);
	if (s->method == BY_CHOLESKY) {
		first = (struct half){.upper = s->upper, .trans = s->upper};
		second = (struct half){.upper = s->upper, .trans = !s->upper};
	} else {
		first = (struct half){.upper = s->trans, .unit = !s->trans, .trans = s->trans};
		second = (struct half){.upper = !s->trans, .unit = s->trans, .trans = s->trans};
	}
	status = add_solution(w, job, first);
	return status == 0 ? add_solution(w, job, second) : status;
}

static void make_key(const struct work *w, bool factors, bool solves, struct job_key *ret)
{
	const struct system *s = w->system;
	const bool bits[] = {factors, solves, s->upper, s->unit, s->trans, s->conj};
	memset(ret, 0, sizeof *ret);
	ret->m = (uint64_t)s->m;
	ret->n = (uint64_t)s->n;
	ret->k = (uint64_t)columns_of(s);
	ret->a = w->a.offset;
	ret->b = w->b.offset;
	ret->c = w->info;
	ret->dtype = s->dtype;
	ret->shape = OF_SYSTEM | (uint32_t)s->method;
	for (unsigned i = 0; i < sizeof bits / sizeof *bits; i++)
		ret->shape |= (uint32_t)bits[i] << (8 + i);
}

/* Runs the ops as one job. Returns false if kopsd did not. */
static bool run(struct work *w, bool factors, bool solves)
{
	struct job_key key;
	bool is_new;
	make_key(w, factors, solves, &key);
	kops_job *job = channel_job(w->channel, &key, &is_new);
	if (!job)
		return false;
	int status = is_new && factors ? add_factorization(w, job) : 0;
	if (status == 0 && is_new && solves)
		status = add_solutions(w, job);
	if (status == 0)
		status = kops_submit(job, NULL, NULL);
	if (status == 0)
		return channel_wait(w->channel, job, flops_of(w->system)) == 0;
	channel_drop(w->channel, job);
	return false;
}

static bool is_singular(const struct work *w)
{
	int32_t info;
	memcpy(&info, w->memory + w->info, sizeof info);
	return w->system->factors && info != 0;
}

/* b's rows are exchanged between factoring and solving, so these are two jobs of lu. */
static enum outcome run_jobs(struct work *w)
{
	const struct system *s = w->system;
	bool solves = columns_of(s) > 0, by_lu = s->method == BY_LU, apart = by_lu && s->factors && solves;
	if (apart && !run(w, true, false))
		return OUTCOME_FAILED;
	if (apart && is_singular(w))
		return OUTCOME_SINGULAR;
	if (by_lu && solves && !s->trans)
		exchange_rows(w, exchange_forward);
	if (!run(w, s->factors && !apart, solves))
		return OUTCOME_FAILED;
	if (by_lu && solves && s->trans)
		exchange_rows(w, exchange_backward);
	return is_singular(w) ? OUTCOME_SINGULAR : OUTCOME_KOPSD;
}

static enum outcome compute_in(struct channel *channel, const struct system *s)
{
	struct work w = {.system = s, .channel = channel};
	if (!lay_out(&w))
		return OUTCOME_FAILED;
	w.buffer = channel_memory(channel, w.bytes);
	w.memory = w.buffer ? kops_data(w.buffer) : NULL;
	if (!w.memory)
		return OUTCOME_FAILED;
	load(&w);
	enum outcome outcome = run_jobs(&w);
	if (outcome == OUTCOME_KOPSD)
		store(&w);
	return outcome;
}

/* ---- The call ---- */

/* Sets call->outcome if it does not go to kopsd. */
static bool is_wanted(const struct system *s, struct call *call)
{
	static const enum side_kind kinds[] = {SIDE_TRIANGLE, SIDE_CHOLESKY, SIDE_LU};
	if (settings_get()->verbose > 1)
		describe(s, call);
	call->outcome = OUTCOME_UNUSUAL;
	if (!is_usual(s))
		return false;
	call->outcome = OUTCOME_SINGULAR;
	if (s->method == BY_TRIANGLE && !s->unit && has_zero_on_diagonal(s))
		return false;
	call->flops = flops_of(s);
	return compute_would_gain(call, s->factors ? kinds[s->method] : SIDE_TRIANGLE, s->dtype,
	                          multiplications_of(s), bytes_of(s));
}

static bool compute(const struct system *s, struct call *call, struct hold *hold)
{
	if (!is_wanted(s, call))
		return false;
	struct channel *channel = channel_take(hold, settings_get()->automatic, &call->outcome);
	if (channel) {
		call->outcome = compute_in(channel, s);
		channel_give(channel);
	}
	if (!channel || call->outcome == OUTCOME_SINGULAR)
		call->side = NULL;
	if (call->outcome == OUTCOME_KOPSD)
		call->copied_bytes = (uint64_t)bytes_of(s);
	return call->outcome == OUTCOME_KOPSD;
}

bool system_compute(const struct system *s, struct call *call)
{
	struct hold hold = {0};
	guard_begin(&hold.guard);
	bool done = compute(s, call, &hold);
	guard_end(&hold.guard);
	return done;
}
