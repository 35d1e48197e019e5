/* problem.c: makes random problems: their memory, layouts and values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "common/half.h"
#include "softmax/operands.h"

#define GUARD_BYTES 64
#define STORAGE_MAX (1u << 30) /* bytes of one operand, except for large problems */

/* ---- Spaces ---- */

static void *map_pages(uint64_t bytes)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return address == MAP_FAILED ? NULL : address;
}

static bool space_map(struct space *s, uint64_t bytes)
{
	*s = (struct space){.bytes = (bytes + 7) & ~(uint64_t)7};
	s->memory.bytes = s->bytes;
	s->host = map_pages(s->bytes);
	if (!s->host)
		return false;
	memset(s->host, 0xff, s->bytes);
	return true;
}

bool space_make(struct space *s, uint64_t bytes)
{
	if (!space_map(s, bytes))
		return false;
	s->before = malloc(s->bytes);
	s->expected = malloc(s->bytes);
	if (!s->before || !s->expected) {
		space_free(s);
		return false;
	}
	memset(s->before, 0xff, s->bytes);
	memset(s->expected, 0xff, s->bytes);
	return true;
}

void space_free(struct space *s)
{
	if (s->host)
		munmap(s->host, s->bytes);
	free(s->before);
	free(s->expected);
	*s = (struct space){0};
}

/* ---- Elements of a view ---- */

bool view_step(const struct view *v, uint64_t index[KOPS_RANK_MAX])
{
	for (uint32_t d = v->rank; d-- > 0;) {
		if (++index[d] < v->shape[d])
			return true;
		index[d] = 0;
	}
	return false;
}

int64_t view_at(const struct view *v, const uint64_t index[KOPS_RANK_MAX])
{
	int64_t at = 0;

	for (uint32_t d = 0; d < v->rank; d++)
		at += (int64_t)index[d] * v->strides[d];
	return at;
}

/* ---- Layouts ---- */

static void shuffle(uint32_t *axes, uint32_t n, struct random *r)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = (uint32_t)random_below(r, i), swap = axes[i - 1];
		axes[i - 1] = axes[j];
		axes[j] = swap;
	}
}

void layout_random(struct view *v, bool output, struct random *r)
{
	uint32_t axes[KOPS_RANK_MAX] = {0, 1, 2, 3};
	bool padded = random_chance(r, 50), reversed = random_chance(r, 15);
	uint64_t stride = random_chance(r, 15) ? 1 + random_below(r, 4) : 1;

	if (random_chance(r, 30))
		shuffle(axes, v->rank, r);
	else if (v->rank > 1 && random_chance(r, 30))
		axes[v->rank - 1] = v->rank - 2, axes[v->rank - 2] = v->rank - 1;
	for (uint32_t i = v->rank; i-- > 0;) {
		uint32_t d = axes[i];
		v->strides[d] = (int64_t)stride;
		stride *= v->shape[d] ? v->shape[d] : 1;
		stride += padded && random_chance(r, 60) ? random_below(r, 20) : 0;
		if (reversed && random_chance(r, 60))
			v->strides[d] = -v->strides[d];
		if (!output && random_chance(r, 4))
			v->strides[d] = 0;
	}
}

/* Places the view `gap` elements behind the next address that vectors are aligned to. */
static void place_behind(struct view *v, uint64_t *used, uint64_t gap)
{
	uint64_t size = dtype_size(v->dtype), below = 0, above = 0;

	for (uint32_t d = 0; d < v->rank; d++) {
		int64_t span = v->shape[d] ? (int64_t)(v->shape[d] - 1) * v->strides[d] : 0;
		if (span < 0)
			below += (uint64_t)-span * size;
		else
			above += (uint64_t)span * size;
	}
	uint64_t start = (*used + GUARD_BYTES + 15) & ~(uint64_t)15;
	v->offset = start + gap * size + below;
	*used = v->offset + above + size + GUARD_BYTES;
}

void layout_place(struct view *v, uint64_t *used, struct random *r)
{
	place_behind(v, used, random_chance(r, 50) ? random_below(r, 16) : 0);
}

/* ---- Values ---- */

enum profile { ORDINARY, INTEGERS, WIDE, SPECIAL, HUGE_VALUES, PROFILES, LARGEST };

static const double specials[] = {NAN,     INFINITY,    -INFINITY, 0,       -0.0,    0x1p-149,
                                  0x1p-24, -0x1.8p-130, 1,         0x1p-15, -0x1p-14};
#define NOT_FINITE 3 /* the first profile with NaN or Inf */

static double special_value(struct random *r)
{
	return specials[random_below(r, sizeof specials / sizeof specials[0])];
}

static double huge_value(kops_dtype dtype, struct random *r)
{
	double size = dtype == KOPS_F16 ? 6e4 : dtype == KOPS_F64 ? 1e300 : 1e37;

	return random_unit(r) < 0 ? -size : size;
}

/* Two such numbers leave the range, but their mean does not. */
static double largest_value(kops_dtype dtype, struct random *r)
{
	double size = dtype == KOPS_F16 ? 65504 : 3e38;

	return (random_chance(r, 80) ? size : -size) * (1 - fabs(random_unit(r)) / 8);
}

static double value(enum profile profile, kops_dtype dtype, struct random *r)
{
	double x = random_unit(r);
	int reach = dtype == KOPS_F16 ? 6 : 20;

	switch (profile) {
	case INTEGERS:
		return (double)random_below(r, 9) - 4;
	case WIDE:
		return ldexp(x, (int)random_below(r, 2 * (uint64_t)reach + 1) - reach);
	case SPECIAL:
		return random_chance(r, 1) ? special_value(r) : x;
	case HUGE_VALUES:
		return random_chance(r, 2) ? huge_value(dtype, r) : x;
	case LARGEST:
		return largest_value(dtype, r);
	case ORDINARY:
	case PROFILES:
		break;
	}
	return x;
}

/* Fills with any bits, for ops that move elements without reading them. */
static void fill_bytes(unsigned char *at, size_t n, struct random *r)
{
	while (n-- > 0)
		*at++ = (unsigned char)random_below(r, 256);
}

/* Puts an index below `limit`, or one that is out of range: whatever a client may send. */
static void put_index(unsigned char *data, int64_t at, uint64_t limit, bool hostile, struct random *r)
{
	const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, (int32_t)limit, (int32_t)random_next(r)};
	int32_t index = outside[random_below(r, 5)];

	if (limit > 0 && !(hostile && random_chance(r, 10)))
		index = (int32_t)random_below(r, limit);
	memcpy(data + at * (int64_t)sizeof index, &index, sizeof index);
}

/* Of complex numbers, both parts. */
static void put_value(unsigned char *data, kops_dtype dtype, int64_t at, enum profile profile, struct random *r)
{
	kops_dtype component = dtype_component(dtype);
	unsigned parts = dtype_components(dtype);
	size_t size = dtype_size(dtype);

	if (dtype_kind(dtype) == DTYPE_INTEGER)
		fill_bytes(data + at * (int64_t)size, size, r);
	else
		for (unsigned part = 0; part < parts; part++)
			half_store(data, component, at * parts + part, value(profile, component, r));
}

static void fill(const struct problem *p, unsigned i, enum profile profile, struct random *r)
{
	const struct view *v = &p->args.views[i];
	unsigned char *data = p->spaces[i]->before + v->offset;
	uint64_t index[KOPS_RANK_MAX] = {0}, limit = op_index_limit(&p->args, i);
	bool is_index = p->args.op->operands[i].is_index, hostile = random_chance(r, 50);

	if (view_elements(v) == 0)
		return;
	do
		if (is_index)
			put_index(data, view_at(v, index), limit, hostile, r);
		else
			put_value(data, v->dtype, view_at(v, index), profile, r);
	while (view_step(v, index));
}

/* Puts NaN, Inf or -Inf in at least one place. Returns true if there is an element. */
static bool spoil(const struct problem *p, unsigned i, struct random *r)
{
	const struct view *v = &p->args.views[i];
	int64_t at = 0;

	if (view_elements(v) == 0)
		return false;
	for (uint32_t d = 0; d < v->rank; d++)
		at += (int64_t)random_below(r, v->shape[d]) * v->strides[d];
	half_store(p->spaces[i]->before + v->offset, dtype_component(v->dtype), at * dtype_components(v->dtype),
	           specials[random_below(r, NOT_FINITE)]);
	return true;
}

/* Puts a run of -Inf anywhere, as masks do: over part of a row, or all of one and parts of others. */
static void mask(const struct problem *p, unsigned i, struct random *r)
{
	const struct view *v = &p->args.views[i];
	uint64_t index[KOPS_RANK_MAX], left;

	if (view_elements(v) == 0)
		return;
	for (uint32_t d = 0; d < v->rank; d++)
		index[d] = random_below(r, v->shape[d]);
	left = 1 + random_below(r, 2 * v->shape[v->rank - 1]);
	do
		half_store(p->spaces[i]->before + v->offset, v->dtype, view_at(v, index), -INFINITY);
	while (--left > 0 && view_step(v, index));
}

static void enlarge(const struct problem *p, unsigned i)
{
	struct view v = p->args.views[i];

	v.data = p->spaces[i]->before + v.offset;
	op_enlarge_diagonals(&v);
}

static enum profile random_profile(const struct problem *p, struct random *r)
{
	if (p->huge)
		return HUGE_VALUES;
	if (p->large != 0 && p->large % 2 == 0 && strcmp(p->args.op->name, "gemm") == 0)
		return WIDE;
	if (random_chance(r, 30))
		return ORDINARY;
	return random_chance(r, 15) ? SPECIAL : (enum profile)random_below(r, PROFILES);
}

/* ---- Problems ---- */

/* Makes lines whole vectors, and dense otherwise. by_columns: column-major. */
static void align_lines(struct view *v, bool by_columns)
{
	uint32_t along = by_columns ? v->rank - 2 : v->rank - 1;
	struct view lines = *v;

	if (by_columns) {
		lines.shape[v->rank - 2] = v->shape[v->rank - 1];
		lines.shape[v->rank - 1] = v->shape[v->rank - 2];
	}
	lines.shape[v->rank - 1] = (v->shape[along] + 7) / 8 * 8;
	view_make_dense(&lines);
	memcpy(v->strides, lines.strides, sizeof v->strides);
	if (by_columns) {
		v->strides[v->rank - 2] = 1;
		v->strides[v->rank - 1] = lines.strides[v->rank - 2];
	}
}

/*
 * Makes what random problems rarely are, since kernels have fast paths for it: aligned lines and, if `full`,
 * dense views whose extents are multiples of a vector. Extents of 1 repeat, and stay.
 */
static void make_neat(struct view *v, bool full, struct random *r)
{
	for (uint32_t d = v->rank > 2 ? v->rank - 2 : 0; full && d < v->rank; d++)
		v->shape[d] = v->shape[d] > 1 ? (v->shape[d] + 7) / 8 * 8 : v->shape[d];
	align_lines(v, v->rank > 1 && random_chance(r, 35));
}

static bool same_shape(const struct view *a, const struct view *b)
{
	return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof a->shape[0]) == 0;
}

/*
 * Returns true if the op lets an output be the same view as `twin`, and so each earlier operand that is this
 * view.
 */
static bool may_replace(const struct problem *p, unsigned out, unsigned twin)
{
	bool may = view_is_injective(&p->args.views[twin]);

	for (unsigned i = 0; i < out; i++)
		if (i == twin || view_same(&p->args.views[i], &p->args.views[twin]))
			may = may && (p->args.op->operands[out].in_place >> i & 1);
	return may;
}

/*
 * Returns true if view i may be the same view as `twin`: any two inputs may; an output, if its op allows it.
 */
static bool may_be(const struct problem *p, unsigned i, unsigned twin)
{
	const struct op *op = p->args.op;
	const struct view *v = &p->args.views[twin];

	if (view_is_absent(v) || v->dtype != p->args.views[i].dtype || !same_shape(&p->args.views[i], v))
		return false;
	return !op_is_output(op, i) || may_replace(p, i, twin);
}

/* Returns which earlier view this one should be identical with; -1: none. */
static int twin_of(const struct problem *p, unsigned i, struct random *r)
{
	if (i == 0 || !random_chance(r, op_is_output(p->args.op, i) ? 30 : 10))
		return -1;
	unsigned twin = (unsigned)random_below(r, i);
	return may_be(p, i, twin) ? (int)twin : -1;
}

static bool place_views(struct problem *p, bool neat, bool resident, struct random *r)
{
	uint64_t used[OP_OPERANDS_MAX] = {0};
	unsigned n = p->args.op->n_operands, owners[OP_OPERANDS_MAX];
	bool together = random_chance(r, 20);

	for (unsigned i = 0; i < n; i++) {
		struct view *v = &p->args.views[i];
		int twin = twin_of(p, i, r);
		if (view_is_absent(v))
			continue;
		if (twin >= 0) {
			*v = p->args.views[twin];
			owners[i] = owners[twin];
			continue;
		}
		owners[i] = together && i ? owners[0] : p->n_storage++;
		if (neat)
			place_behind(v, &used[owners[i]], 0);
		else
			layout_place(v, &used[owners[i]], r);
	}
	for (unsigned i = 0; i < p->n_storage; i++) {
		if (!p->large && used[i] > STORAGE_MAX) {
			fprintf(stderr, "a random problem wants %llu bytes\n", (unsigned long long)used[i]);
			return false;
		}
		if (!space_make(&p->storage[i], used[i] + GUARD_BYTES))
			return false;
		p->storage[i].resident = resident || random_chance(r, 30);
		p->storage[i].pinnable = random_chance(r, 50);
	}
	for (unsigned i = 0; i < n; i++) {
		if (view_is_absent(&p->args.views[i]))
			continue;
		p->spaces[i] = &p->storage[owners[i]];
		p->args.views[i].space = &p->spaces[i]->memory;
	}
	return true;
}

static void fill_views(struct problem *p, struct random *r)
{
	enum profile profile = random_profile(p, r);
	unsigned n = op_first_output(p->args.op);

	p->huge = profile == HUGE_VALUES;
	if (p->huge && strcmp(p->args.op->name, "reduce") == 0)
		profile = LARGEST;
	for (unsigned i = 0; i < n; i++)
		if (!view_is_absent(&p->args.views[i]))
			fill(p, i, profile, r);
	for (unsigned i = 0; i < n; i++)
		if (p->args.op->operands[i].has_large_diagonal && random_chance(r, 85))
			enlarge(p, i);
	if (strcmp(p->args.op->name, "softmax") == 0 && random_chance(r, 15))
		mask(p, SOFTMAX_X, r);
	if (strcmp(p->args.op->name, "softmax") == 0 && random_chance(r, 60) &&
	    !view_is_absent(&p->args.views[SOFTMAX_MASK]))
		mask(p, SOFTMAX_MASK, r);
	if (profile == SPECIAL)
		p->special = spoil(p, (unsigned)random_below(r, n), r);
	/* The outputs stay poisoned otherwise; twins of inputs are filled already. */
	for (unsigned i = n; i < p->args.op->n_operands; i++)
		if (p->args.op->operands[i].role == OPERAND_UPDATED && op_reads_output(&p->args, i))
			fill(p, i, profile, r);
}

bool problem_complete(struct problem *p, bool neat, bool resident, struct random *r)
{
	const struct op *op = p->args.op;
	char why[WHY_BYTES];

	if (!place_views(p, neat, resident, r))
		return false;
	fill_views(p, r);
	if (op_check(&p->args, why) == 0)
		return true;
	fprintf(stderr, "check() of %s refused a problem that is valid: %s\n", op->name, why);
	return false;
}

bool problem_make(struct problem *p, const struct op *op, unsigned large, struct random *r)
{
	bool neat = random_chance(r, has_many_tiles(large) ? 60 : 25), full = random_chance(r, 50);

	full &= !shaper_of(op)->fewer_axes;
	*p = (struct problem){.args.op = op, .large = large};
	shaper_of(op)->shape(p, r);
	if (p->aligned)
		return problem_complete(p, true, random_chance(r, 70), r);
	for (unsigned i = 0; neat && i < op->n_operands; i++)
		if (!view_is_absent(&p->args.views[i]))
			make_neat(&p->args.views[i], full, r);
	/* Gaps between lines are lost when operands are copied from host memory. */
	return problem_complete(p, neat, neat && !full, r);
}

void problem_free(struct problem *p)
{
	for (unsigned i = 0; i < p->n_storage; i++)
		space_free(&p->storage[i]);
	p->n_storage = 0;
}

static int describe_view(const struct problem *p, unsigned i, char *text, size_t size)
{
	const struct view *v = &p->args.views[i];
	if (view_is_absent(v))
		return snprintf(text, size, " absent");
	int n = snprintf(text, size, " %s%s[", dtype_name(v->dtype), p->spaces[i]->resident ? " resident" : "");

	for (uint32_t d = 0; d < v->rank && n < (int)size; d++)
		n += snprintf(text + n, size - (size_t)n, "%s%llu:%lld", d ? " " : "",
		              (unsigned long long)v->shape[d], (long long)v->strides[d]);
	if (n < (int)size)
		n += snprintf(text + n, size - (size_t)n, "]+%llu", (unsigned long long)v->offset);
	return n;
}

static double attribute_of(const struct op_args *args, const struct op_attribute *a)
{
	const char *at = (const char *)&args->params + a->offset;
	double number = 0;
	uint32_t count = 0;
	bool flag = false;
	int choice = 0;

	switch (a->type) {
	case ATTRIBUTE_NUMBER:
		memcpy(&number, at, sizeof number);
		return number;
	case ATTRIBUTE_COUNT:
		memcpy(&count, at, sizeof count);
		return count;
	case ATTRIBUTE_FLAG:
		memcpy(&flag, at, sizeof flag);
		return flag;
	case ATTRIBUTE_CHOICE:
		memcpy(&choice, at, sizeof choice);
		return choice;
	}
	return 0;
}

void problem_describe(const struct problem *p, char text[CHECK_TEXT_BYTES])
{
	const struct op *op = p->args.op;
	int n = snprintf(text, CHECK_TEXT_BYTES, "%s", op->name);

	for (unsigned i = 0; i < op->n_operands && n < CHECK_TEXT_BYTES; i++)
		n += describe_view(p, i, text + n, (size_t)(CHECK_TEXT_BYTES - n));
	for (unsigned i = 0; i < op->n_attributes && n < CHECK_TEXT_BYTES; i++)
		n += snprintf(text + n, (size_t)(CHECK_TEXT_BYTES - n), " %s %g", op->attributes[i].name,
		              attribute_of(&p->args, &op->attributes[i]));
}
