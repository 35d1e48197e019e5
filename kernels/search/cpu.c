/*
 * search on the CPU.
 *
 * tiles       Rows of the base are converted to f32, a block of them at a time that stays in the cache, and
 * scored with up to 4 queries at once by vector loops. Scores become keys, of which the best k of each query
 *             are kept as by top_k. Threads take pieces of the base, and those of a query are joined at the
 * end. reference   plain loops in float64
 */
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "search/search.h"
#include "top_k/candidates.h"

enum {
	QUERIES = SEARCH_QUERIES,
	BASE = SEARCH_BASE,
	FILTER = SEARCH_FILTER,
	VALUES = SEARCH_VALUES,
	INDICES = SEARCH_INDICES
};

#define TOGETHER     4           /* queries that are scored with a row at once */
#define BLOCK_FLOATS 32768       /* of a block of rows, if they are not longer */
#define BLOCK_ROWS   256         /* at most */
#define PIECE_WORK   2000000     /* multiplications that are worth a thread */
#define LANES        16          /* independent sums of a product */
#define CHUNK        64          /* queries with which a part goes through the base at once */
#define CHUNK_FLOATS 131072      /* of a chunk, if its queries are not longer */
#define PLACES_BYTES (48u << 20) /* of all parts that run at the same time */

/* ---- Sums ---- */

/* Sums of TERM over the columns of a row and of N queries, which follow each other. */
#define PRODUCTS(NAME, N, TERM)                                                                                \
	static CPU_CLONES void NAME(const float *q, const float *row, int64_t columns, float *ret)             \
	{                                                                                                      \
		float sums[N][LANES] = {{0}};                                                                  \
		int64_t i = 0;                                                                                 \
                                                                                                               \
		for (; i + LANES <= columns; i += LANES)                                                       \
			for (int n = 0; n < (N); n++)                                                          \
				CPU_PRAGMA(omp simd)                                                           \
		for (int j = 0; j < LANES; j++) {                                                              \
			float a = q[n * columns + i + j], b = row[i + j];                                      \
			sums[n][j] += TERM;                                                                    \
		}                                                                                              \
		for (int n = 0; n < (N); n++) {                                                                \
			float sum = 0;                                                                         \
			for (int64_t j = i; j < columns; j++) {                                                \
				float a = q[n * columns + j], b = row[j];                                      \
				sum += TERM;                                                                   \
			}                                                                                      \
			for (int step = LANES / 2; step > 0; step /= 2)                                        \
				for (int j = 0; j < step; j++)                                                 \
					sums[n][j] += sums[n][j + step];                                       \
			ret[n] = sum + sums[n][0];                                                             \
		}                                                                                              \
	}

PRODUCTS(product_of_4, 4, a *b)
PRODUCTS(product_of_1, 1, a *b)
PRODUCTS(distance_of_4, 4, (a - b) * (a - b))
PRODUCTS(distance_of_1, 1, (a - b) * (a - b))

/* n elements, `stride` apart, as f32. */
static CPU_CLONES void convert(float *to, const void *from, kops_dtype dtype, int64_t first, int64_t stride,
                               int64_t n)
{
	const uint16_t *halves = (const uint16_t *)from + first;
	const float *floats = (const float *)from + first;

	switch (dtype) {
	case KOPS_F16:
		for (int64_t i = 0; i < n; i++)
			to[i] = f16_to_f32(halves[i * stride]);
		break;
	case KOPS_BF16:
		for (int64_t i = 0; i < n; i++)
			to[i] = bf16_to_f32(halves[i * stride]);
		break;
	default:
		for (int64_t i = 0; i < n; i++)
			to[i] = floats[i * stride];
		break;
	}
}

/* ---- The work ---- */

/*
 * Queries are divided into groups, and the base into pieces if there are few of them. A part is a group and a
 * piece. It goes through its piece once for each chunk of its queries.
 */
struct searching {
	const struct op_args *args;
	uint64_t queries, rows, columns, chunk, block_rows;
	unsigned groups, pieces;
	char *memory;
};

/* The memory of a part. */
struct place {
	candidate *lists;               /* candidates_room() for each query of a chunk */
	float *queries, *rows, *scores; /* a chunk; a block; of a block with TOGETHER queries */
	float *of_queries, *of_rows;    /* squared lengths */
	struct candidates *found;       /* of each query of a chunk */
};

/* Sets the places in a part's memory, or only returns its bytes. */
static uint64_t lay_out(const struct searching *s, unsigned part, struct place *ret)
{
	uint64_t lists = cpu_align(s->chunk * candidates_room(search_count(s->args)) * sizeof(candidate)),
	         found = cpu_align(s->chunk * sizeof(struct candidates)),
	         queries = cpu_align(s->chunk * s->columns * sizeof(float)),
	         rows = cpu_align(s->block_rows * s->columns * sizeof(float)),
	         lengths = cpu_align((s->chunk + s->block_rows) * sizeof(float)),
	         scores = cpu_align(s->block_rows * TOGETHER * sizeof(float)),
	         bytes = lists + found + queries + rows + lengths + scores;

	if (ret) {
		char *at = s->memory + part * bytes;

		ret->lists = (candidate *)(void *)at;
		ret->found = (struct candidates *)(void *)(at += lists);
		ret->queries = (float *)(void *)(at += found);
		ret->rows = (float *)(void *)(at += queries);
		ret->of_queries = (float *)(void *)(at += rows);
		ret->of_rows = ret->of_queries + s->chunk;
		ret->scores = (float *)(void *)(at += lengths);
	}
	return bytes;
}

static struct searching searching_of(const struct op_args *args)
{
	const struct view *q = &args->views[QUERIES], *base = &args->views[BASE];
	struct searching s = {
	    .args = args, .queries = q->shape[0], .rows = base->shape[0], .columns = q->shape[1]};
	uint64_t columns = s.columns > 0 ? s.columns : 1, most = 2 * (uint64_t)threads_count(), wanted, chunks;
	double work = (double)s.queries * (double)s.rows * (double)columns;

	s.block_rows = BLOCK_FLOATS / columns < TOGETHER ? TOGETHER : BLOCK_FLOATS / columns;
	s.block_rows = s.block_rows < BLOCK_ROWS ? s.block_rows : BLOCK_ROWS;
	s.chunk = CHUNK_FLOATS / columns < CHUNK ? CHUNK_FLOATS / columns : CHUNK;
	s.chunk = s.chunk < TOGETHER ? TOGETHER : s.chunk;
	s.chunk = s.chunk < s.queries ? s.chunk : s.queries;
	chunks = s.chunk > 0 ? (s.queries + s.chunk - 1) / s.chunk : 1;
	wanted = threads_parts(work < 1e18 ? (uint64_t)work : (uint64_t)1e18, PIECE_WORK);
	wanted = wanted < most ? wanted : most;
	most = PLACES_BYTES / lay_out(&s, 0, NULL);
	wanted = wanted < most ? wanted : most > 0 ? most : 1;
	s.groups = (unsigned)(wanted < chunks ? wanted : chunks);
	s.pieces = s.groups > 0 ? (unsigned)(wanted / s.groups) : 1;
	if (s.groups < chunks)
		s.pieces = 1;
	if (s.pieces > s.rows / s.block_rows + 1)
		s.pieces = (unsigned)(s.rows / s.block_rows + 1);
	return s;
}

/* ---- Blocks ---- */

/* Copies rows of a view as f32, and sums up their squares if they are asked for. */
static void load(const struct view *v, uint64_t first, uint64_t n, float *to, float *lengths)
{
	int64_t columns = (int64_t)v->shape[1];

	for (uint64_t i = 0; i < n; i++) {
		float *row = to + (int64_t)i * columns;

		convert(row, v->data, v->dtype, (int64_t)(first + i) * v->strides[0], v->strides[1], columns);
		if (lengths)
			product_of_1(row, row, columns, &lengths[i]);
	}
}

/* Scores n rows with n_queries queries from `query` of the chunk on. Those of one query follow each other. */
static void score(const struct searching *s, const struct place *p, uint64_t query, uint64_t n_queries,
                  uint64_t n)
{
	enum search_metric metric = search_metric_of(s->args);
	const float *q = p->queries + query * s->columns;
	int64_t columns = (int64_t)s->columns;

	for (uint64_t i = 0; i < n; i++) {
		const float *row = p->rows + i * s->columns;
		float sums[TOGETHER];

		if (n_queries == TOGETHER)
			(metric == SEARCH_L2 ? distance_of_4 : product_of_4)(q, row, columns, sums);
		for (uint64_t j = 0; j < n_queries && n_queries < TOGETHER; j++)
			(metric == SEARCH_L2 ? distance_of_1 : product_of_1)(q + (int64_t)j * columns, row,
			                                                     columns, &sums[j]);
		for (uint64_t j = 0; j < n_queries; j++) {
			float lengths = sqrtf(p->of_queries[query + j]) * sqrtf(p->of_rows[i]);

			if (metric == SEARCH_COSINE)
				sums[j] = lengths > 0 ? sums[j] / lengths : 0;
			p->scores[j * s->block_rows + i] = metric == SEARCH_L2 ? -sums[j] : sums[j];
		}
	}
}

/* A number, as an integer that rises with it. -0 becomes 0. */
static int32_t key_of(float score)
{
	float sum = score + 0.0f;
	int32_t bits;

	memcpy(&bits, &sum, sizeof bits);
	return bits < 0 ? bits ^ INT32_MAX : bits;
}

static float value_of(int32_t key)
{
	float score;

	key = key < 0 ? key ^ INT32_MAX : key;
	memcpy(&score, &key, sizeof score);
	return score;
}

/* first: the block's first row, of the whole base. */
static void collect(const struct searching *s, const struct place *p, uint64_t query, uint64_t in_chunk,
                    const float *scores, uint64_t first, uint64_t n)
{
	struct candidates *c = &p->found[in_chunk];

	for (uint64_t i = 0; i < n; i++) {
		int32_t key = key_of(scores[i]);

		if (key > c->threshold && !isnan(scores[i]) && search_allows(s->args, query, first + i))
			candidates_push(c, key, (int64_t)(first + i));
	}
}

/* All rows [from, to) for queries [query, query + n). */
static void search_chunk(const struct searching *s, const struct place *p, uint64_t query, uint64_t n,
                         uint64_t from, uint64_t to)
{
	const struct view *base = &s->args->views[BASE];
	uint32_t k = search_count(s->args);

	load(&s->args->views[QUERIES], query, n, p->queries, p->of_queries);
	for (uint64_t i = 0; i < n; i++)
		candidates_start(&p->found[i], p->lists + i * candidates_room(k), k);
	for (uint64_t row = from; row < to; row += s->block_rows) {
		uint64_t rows = to - row < s->block_rows ? to - row : s->block_rows;

		load(base, row, rows, p->rows, search_metric_of(s->args) == SEARCH_COSINE ? p->of_rows : NULL);
		for (uint64_t i = 0; i < n; i += TOGETHER) {
			uint64_t together = n - i < TOGETHER ? n - i : TOGETHER;

			score(s, p, i, together, rows);
			for (uint64_t j = 0; j < together; j++)
				collect(s, p, query + i + j, i + j, p->scores + j * s->block_rows,
				        search_first(s->args) + row, rows);
		}
	}
}

/* ---- Results ---- */

static void take_carried(const struct op_args *args, const struct search_found *carried, struct candidates *c)
{
	for (uint32_t i = 0; i < c->k && carried[i].index >= 0; i++)
		candidates_add(c, candidate_of(key_of(search_metric_of(args) == SEARCH_L2 ? -carried[i].value
		                                                                          : carried[i].value),
		                               carried[i].index));
}

static void store(const struct op_args *args, uint64_t query, struct candidates *c)
{
	const struct view *values = &args->views[VALUES], *indices = &args->views[INDICES];
	struct search_found *carried = search_carried(args, query);
	bool is_l2 = search_metric_of(args) == SEARCH_L2;

	if (carried && args->params.plain.flags[SEARCH_GOES_ON])
		take_carried(args, carried, c);
	candidates_finish(c);
	for (uint32_t i = 0; i < c->k; i++) {
		struct search_found f = {search_nothing(search_metric_of(args)), -1};

		if (i < c->n) {
			float score = value_of((int32_t)candidate_key(c->list[i]));
			f = (struct search_found){is_l2 ? 0.0f - score : score,
			                          (int32_t)candidate_index(c->list[i])};
		}
		((float *)values->data)[(int64_t)query * values->strides[0] + i * values->strides[1]] = f.value;
		if (!view_is_absent(indices))
			((int32_t *)
			     indices->data)[(int64_t)query * indices->strides[0] + i * indices->strides[1]] =
			    f.index;
		if (carried)
			carried[i] = f;
	}
}

static void search_part(void *ctx, unsigned part)
{
	const struct searching *s = ctx;
	unsigned group = part / s->pieces, piece = part % s->pieces;
	uint64_t query = threads_bound(s->queries, group, s->groups),
	         end = threads_bound(s->queries, group + 1, s->groups);
	struct place p;

	lay_out(s, part, &p);
	while (query < end) {
		uint64_t n = end - query < s->chunk ? end - query : s->chunk;

		search_chunk(s, &p, query, n, threads_bound(s->rows, piece, s->pieces),
		             threads_bound(s->rows, piece + 1, s->pieces));
		for (uint64_t i = 0; i < n; i++) {
			if (s->pieces == 1)
				store(s->args, query + i, &p.found[i]);
			else
				candidates_reduce(&p.found[i]);
		}
		query += n;
	}
}

/* A group's queries are one chunk then. */
static void join_pieces(const struct searching *s)
{
	for (unsigned group = 0; group < s->groups; group++) {
		uint64_t first = threads_bound(s->queries, group, s->groups),
		         n = threads_bound(s->queries, group + 1, s->groups) - first;
		struct place p, other;

		lay_out(s, group * s->pieces, &p);
		for (unsigned piece = 1; piece < s->pieces; piece++) {
			lay_out(s, group * s->pieces + piece, &other);
			for (uint64_t i = 0; i < n; i++)
				for (uint32_t j = 0; j < other.found[i].n; j++)
					candidates_add(&p.found[i], other.found[i].list[j]);
		}
		for (uint64_t i = 0; i < n; i++)
			store(s->args, first + i, &p.found[i]);
	}
}

static uint64_t workspace(const struct op_args *args)
{
	struct searching s = searching_of(args);

	return (uint64_t)s.groups * s.pieces * lay_out(&s, 0, NULL);
}

static int tiles(const struct op_args *args, const struct launch *launch)
{
	struct searching s = searching_of(args);

	s.memory = launch->workspace;
	threads_run(s.groups * s.pieces, search_part, &s);
	if (s.pieces > 1)
		join_pieces(&s);
	return 0;
}

static double time_ns(const struct op_args *args)
{
	const double product_ns = 0.05, score_ns = 3, query_ns = 500;
	double queries = (double)args->views[QUERIES].shape[0], rows = (double)args->views[BASE].shape[0],
	       columns = (double)args->views[QUERIES].shape[1], scores = queries * rows,
	       parts = scores * columns / PIECE_WORK, k = search_count(args);
	/* Conversions, once for each chunk of queries. */
	double converted = ceil(queries / CHUNK) * rows * columns;

	return (scores * (columns * product_ns + score_ns) + converted + queries * (query_ns + k * 100)) /
	           cpu_threads(parts) +
	       cpu_memory_ns(args, parts);
}

static double reference_ns(const struct op_args *args)
{
	double scores = (double)args->views[QUERIES].shape[0] * (double)args->views[BASE].shape[0];

	return cpu_reference_ns(args) +
	       scores * ((double)args->views[QUERIES].shape[1] * 12 + search_count(args) * 2);
}

static const struct kernel kernels[] = {
    {.name = "tiles",
     .idea = "blocks of rows with four queries by vector loops, a threshold for each query, threads",
     .dtypes = "f32 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = tiles},
    CPU_REFERENCE_KERNEL_OF("f32 f16 bf16", reference_ns),
};

const struct kernel_list search_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
