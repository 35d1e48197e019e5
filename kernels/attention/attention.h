/* attention.h: attention's operands and attributes, and which keys a query sees. */
#ifndef KOPS_KERNELS_ATTENTION_H
#define KOPS_KERNELS_ATTENTION_H

#include <math.h>

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* After check() matrices have rank 4: batches, heads, rows, columns. The mask is spread to batches, heads,
 * queries, keys. LENGTHS has a number for each batch, LSE one for each batch, head and query. */
enum {
	ATTENTION_Q,
	ATTENTION_K,
	ATTENTION_V,
	ATTENTION_MASK,
	ATTENTION_LENGTHS,
	ATTENTION_O,
	ATTENTION_LSE,
};

#define ATTENTION_DEPTH_MAX 1024 /* head_dim and value_dim */

/*
 * Places in struct plain_params. check() and parts set FIRST, the position of the first query among the keys;
 * HEAD, the place of the first head among those that share its head of k and v; GROUP, how many do; ALL, how
 * many keys there are, of which a part has some behind the BEFORE first ones. IS_PART: of the keys, which goes
 * on with what is carried if GOES_ON.
 */
enum {
	ATTENTION_SCALE,
	ATTENTION_FIRST,
	ATTENTION_HEAD,
	ATTENTION_GROUP,
	ATTENTION_BEFORE,
	ATTENTION_ALL,
};                                             /* numbers */
enum { ATTENTION_WINDOW, ATTENTION_DIAGONAL }; /* counts */
enum { ATTENTION_IS_PART, ATTENTION_GOES_ON }; /* flags */

/* Where a query sees the keys up to its own position: counted from the first of both, or from the last. */
enum attention_causal { ATTENTION_NOT_CAUSAL, ATTENTION_TOP_LEFT, ATTENTION_BOTTOM_RIGHT };

struct attention_keys {
	int64_t begin, end;
};

/* What kernels need to know of the attributes. */
struct attention_rule {
	double scale;
	int64_t first, keys, window; /* window 0: none */
	int64_t before, all;         /* for attention_rule_for() */
	bool causal, from_end;
};

static inline struct attention_rule attention_rule_of(const struct op_args *args)
{
	const struct plain_params *p = &args->params.plain;
	struct attention_rule r;

	r.scale = p->numbers[ATTENTION_SCALE];
	r.first = (int64_t)p->numbers[ATTENTION_FIRST];
	r.keys = (int64_t)args->views[ATTENTION_K].shape[2];
	r.window = (int64_t)p->counts[ATTENTION_WINDOW];
	r.before = (int64_t)p->numbers[ATTENTION_BEFORE];
	r.all = (int64_t)p->numbers[ATTENTION_ALL];
	r.causal = p->counts[ATTENTION_DIAGONAL] != ATTENTION_NOT_CAUSAL;
	r.from_end = p->counts[ATTENTION_DIAGONAL] == ATTENTION_BOTTOM_RIGHT;
	return r;
}

/* Returns the head of k and v that a head of q uses. */
static inline uint64_t attention_shared_head(const struct op_args *args, uint64_t head)
{
	const double *numbers = args->params.plain.numbers;

	return ((uint64_t)numbers[ATTENTION_HEAD] + head) / (uint64_t)numbers[ATTENTION_GROUP];
}

/*
 * What parts of the keys hand on of each query, as doubles: the sum of v times exponentials, column by column;
 * the largest score; and the sum of exponentials relative to it. Returns where that of a query begins.
 */
static inline double *attention_carried(const struct op_args *args, uint64_t batch, uint64_t head, uint64_t row)
{
	const struct view *o = &args->views[ATTENTION_O];

	return (double *)args->carried + ((batch * o->shape[1] + head) * o->shape[2] + row) * (o->shape[3] + 2);
}

#ifdef __CUDACC__
#define ATTENTION_ANYWHERE __host__ __device__
#else
#define ATTENTION_ANYWHERE
#endif

/* Returns the rule of a batch of which only the first `length` keys count: whatever a client wrote there. */
static inline ATTENTION_ANYWHERE struct attention_rule attention_rule_for(struct attention_rule r,
                                                                          int64_t length)
{
	length = length < 0 ? 0 : length > r.all ? r.all : length;
	if (r.from_end)
		r.first += length - r.all;
	length = length < r.before ? 0 : length - r.before;
	r.keys = length < r.keys ? length : r.keys;
	return r;
}

/* The same in host memory, where clients may be writing meanwhile: read once. */
static inline struct attention_rule attention_rule_at(const struct op_args *args, uint64_t batch)
{
	const struct view *lengths = &args->views[ATTENTION_LENGTHS];
	struct attention_rule r = attention_rule_of(args);

	if (lengths->dtype == 0)
		return r;
	return attention_rule_for(
	    r, __atomic_load_n((const int32_t *)lengths->data + (int64_t)batch * lengths->strides[0],
	                       __ATOMIC_RELAXED));
}

/* Returns the keys that query i sees; none: end <= begin. */
static inline ATTENTION_ANYWHERE struct attention_keys attention_keys_of(const struct attention_rule *r,
                                                                         int64_t i)
{
	int64_t at = r->first + i, begin = 0, end = r->keys;
	struct attention_keys keys;

	if (r->window > 0 && at - r->window + 1 > 0)
		begin = at - r->window + 1;
	if (r->causal && at + 1 < end)
		end = at + 1;
	else if (r->window > 0 && at + r->window < end)
		end = at + r->window;
	keys.begin = begin;
	keys.end = end;
	return keys;
}

#ifdef __cplusplus
}
#endif

#endif
