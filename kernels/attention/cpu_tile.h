/*
 * cpu_tile.h: attention of some queries of one head, for one type of arithmetic. cpu.c includes this file once
 * for each: REAL, NAMED(name), EXP(t) for t <= 0.
 *
 * Keys come in blocks of KEYS. Scores of a block are q times the block's keys, transposed, so that the loops
 * are along keys; results are sums of rows of v. Each row keeps the largest score so far and the sum of
 * exponentials relative to it; when a block has a larger one, what was summed up is scaled down (M. Milakov, N.
 * Gimelshein, "Online normalizer calculation for softmax", 2018).
 */

/* What a thread works on: q, QUERIES x depth; keys transposed, depth x KEYS; rows of k or v as they come;
 * scores, QUERIES x KEYS; sums, QUERIES x values; and the state of each query. */
struct NAMED(tile) {
	REAL *q, *k, *rows, *scores, *sums;
	REAL *peaks, *totals;
};

static struct NAMED(tile) NAMED(tile_in)(char *memory, const struct sizes *s)
{
	struct NAMED(tile) t;
	REAL *at = (REAL *)(void *)memory;

	t.q = at, at += QUERIES * s->depth;
	t.k = at, at += KEYS * s->depth;
	t.rows = at, at += KEYS * (s->depth > s->values ? s->depth : s->values);
	t.scores = at, at += QUERIES * KEYS;
	t.sums = at, at += QUERIES * s->values;
	t.peaks = at, at += QUERIES;
	t.totals = at;
	return t;
}

/* Rows of one view, side by side in REAL. */
static void NAMED(gather)(REAL *to, const struct view *v, const struct head *at, uint64_t head, int64_t first,
                          int64_t rows)
{
	int64_t columns = (int64_t)v->shape[3];

	for (int64_t i = 0; i < rows; i++)
		NAMED(load_row)(to + i * columns, v, at->batch, head, first + i, 0, columns);
}

/* Transposes rows x depth to depth x KEYS. */
static void NAMED(transpose)(REAL *to, const REAL *from, int64_t rows, int64_t depth)
{
	for (int64_t d = 0; d < depth; d++)
		for (int64_t j = 0; j < rows; j++)
			to[d * KEYS + j] = from[j * depth + d];
}

/* Adds to each of `rows` rows of y, `width` long and `apart` elements apart: the sum over j of x[row][j] *
 * m[j]. */
CPU_CLONES static void NAMED(add_products)(REAL *y, int64_t apart, const REAL *x, int64_t x_apart,
                                           const REAL *m, int64_t m_apart, int64_t rows, int64_t n,
                                           int64_t width)
{
	int64_t i = 0;

	for (; i + 4 <= rows; i += 4) {
		REAL *y0 = y + i * apart, *y1 = y0 + apart, *y2 = y1 + apart, *y3 = y2 + apart;
		const REAL *x0 = x + i * x_apart, *x1 = x0 + x_apart, *x2 = x1 + x_apart, *x3 = x2 + x_apart;

		for (int64_t j = 0; j < n; j++) {
			REAL a = x0[j], b = x1[j], c = x2[j], d = x3[j];
			const REAL *from = m + j * m_apart;

#pragma omp simd
			for (int64_t e = 0; e < width; e++) {
				y0[e] += a * from[e];
				y1[e] += b * from[e];
				y2[e] += c * from[e];
				y3[e] += d * from[e];
			}
		}
	}
	for (; i < rows; i++)
		for (int64_t j = 0; j < n; j++) {
			REAL a = x[i * x_apart + j];

#pragma omp simd
			for (int64_t e = 0; e < width; e++)
				y[i * apart + e] += a * m[j * m_apart + e];
		}
}

/* Of one query with keys that lie side by side: faster than to transpose these for few queries. */
CPU_CLONES static void NAMED(dot_products)(REAL *scores, const REAL *q, const REAL *keys, int64_t n,
                                           int64_t depth)
{
	for (int64_t j = 0; j < n; j++) {
		const REAL *key = keys + j * depth;
		REAL sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int64_t d = 0; d < depth; d++)
			sum += q[d] * key[d];
		scores[j] = sum;
	}
}

CPU_CLONES static REAL NAMED(scale_row)(REAL *scores, int64_t n, REAL scale, REAL peak)
{
	CPU_EXTREMES(reduction(max : peak))
	for (int64_t j = 0; j < n; j++) {
		scores[j] *= scale;
		peak = scores[j] > peak ? scores[j] : peak;
	}
	return peak;
}

CPU_CLONES static REAL NAMED(exp_row)(REAL *scores, int64_t n, REAL peak)
{
	REAL sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++) {
		REAL e = EXP(scores[j] - peak);
		scores[j] = e;
		sum += e;
	}
	return sum;
}

CPU_CLONES static void NAMED(multiply)(REAL *row, int64_t n, REAL by)
{
#pragma omp simd
	for (int64_t e = 0; e < n; e++)
		row[e] *= by;
}

/* Makes exponentials of the scores of a query with keys first, first + 1, …: none where it does not see the
 * key. */
static void NAMED(weigh_row)(const struct NAMED(tile) * t, const struct work *w, const struct head *at,
                             int64_t row, int64_t i, int64_t first, int64_t n, REAL *mask)
{
	struct attention_keys seen = attention_keys_of(&at->rule, row);
	int64_t begin = seen.begin > first ? seen.begin - first : 0;
	int64_t end = seen.end - first < n ? seen.end - first : n;
	REAL *scores = t->scores + i * KEYS, before = t->peaks[i], peak = before;

	if (end <= begin) {
		memset(scores, 0, (size_t)n * sizeof *scores);
		return;
	}
	memset(scores, 0, (size_t)begin * sizeof *scores);
	memset(scores + end, 0, (size_t)(n - end) * sizeof *scores);
	if (w->mask) {
		NAMED(load_row)(mask, w->mask, at->batch, at->head, row, first, n);
		for (int64_t j = begin; j < end; j++)
			scores[j] = scores[j] * (REAL)at->rule.scale + mask[j];
		peak = NAMED(scale_row)(scores + begin, end - begin, 1, peak);
	} else {
		peak = NAMED(scale_row)(scores + begin, end - begin, (REAL)at->rule.scale, peak);
	}
	t->peaks[i] = peak;
	if (before != peak && before != -(REAL)INFINITY) {
		REAL factor = EXP(before - peak);
		t->totals[i] *= factor;
		NAMED(multiply)(t->sums + i * w->sizes.values, w->sizes.values, factor);
	}
	/* Relative to -Inf, scores of -Inf would be NaN. */
	t->totals[i] += NAMED(exp_row)(scores + begin, end - begin, peak == -(REAL)INFINITY ? 0 : peak);
}

/* What the part before hands on of a query. */
static void NAMED(take_carried)(const struct NAMED(tile) * t, int64_t i, int64_t values, const double *carried)
{
	for (int64_t e = 0; e < values; e++)
		t->sums[i * values + e] = (REAL)carried[e];
	t->peaks[i] = (REAL)carried[values];
	t->totals[i] = (REAL)carried[values + 1];
}

static void NAMED(carry)(const struct NAMED(tile) * t, int64_t i, int64_t values, double *carried)
{
	for (int64_t e = 0; e < values; e++)
		carried[e] = (double)t->sums[i * values + e];
	carried[values] = (double)t->peaks[i];
	carried[values + 1] = (double)t->totals[i];
}

/* Begins with nothing, or with what is carried. */
static void NAMED(begin)(const struct NAMED(tile) * t, const struct work *w, const struct head *at,
                         int64_t first_row, int64_t rows)
{
	int64_t values = w->sizes.values;

	for (int64_t i = 0; i < rows; i++) {
		t->peaks[i] = -(REAL)INFINITY;
		t->totals[i] = 0;
	}
	memset(t->sums, 0, (size_t)(rows * values) * sizeof *t->sums);
	for (int64_t i = 0; w->args->params.plain.flags[ATTENTION_GOES_ON] && i < rows; i++)
		NAMED(take_carried)
	(t, i, values, attention_carried(w->args, at->batch, at->head, (uint64_t)(first_row + i)));
}

/* Writes results, and what is carried. */
static void NAMED(end)(const struct NAMED(tile) * t, const struct work *w, const struct head *at,
                       int64_t first_row, int64_t rows)
{
	int64_t values = w->sizes.values;

	for (int64_t i = 0; i < rows; i++) {
		REAL total = t->totals[i];

		if (w->args->params.plain.flags[ATTENTION_IS_PART])
			NAMED(carry)
		(t, i, values, attention_carried(w->args, at->batch, at->head, (uint64_t)(first_row + i)));
		store_lse(w->args, at, first_row + i,
		          total == 0 ? -(double)INFINITY : (double)t->peaks[i] + log((double)total));
		NAMED(multiply)(t->sums + i * values, values, total == 0 ? 0 : 1 / total);
		NAMED(store_row)(t->sums + i * values, &w->args->views[ATTENTION_O], at, first_row + i, values);
	}
}

/* Queries first_row … of a head, `rows` of them; memory: sizes.bytes. */
static void NAMED(attend)(const struct work *w, const struct head *at, int64_t first_row, int64_t rows,
                          char *memory)
{
	const struct view *views = w->args->views;
	struct NAMED(tile) t = NAMED(tile_in)(memory, &w->sizes);
	int64_t depth = w->sizes.depth, values = w->sizes.values;
	int64_t begin = attention_keys_of(&at->rule, first_row).begin;
	int64_t end = attention_keys_of(&at->rule, first_row + rows - 1).end;
	bool few = rows < FEW_QUERIES;
	REAL mask[KEYS];

	NAMED(gather)(t.q, &views[ATTENTION_Q], at, at->head, first_row, rows);
	NAMED(begin)(&t, w, at, first_row, rows);
	for (int64_t first = begin; first < end; first += KEYS) {
		int64_t n = end - first < KEYS ? end - first : KEYS;

		NAMED(gather)(t.rows, &views[ATTENTION_K], at, at->shared, first, n);
		if (few) {
			for (int64_t i = 0; i < rows; i++)
				NAMED(dot_products)(t.scores + i * KEYS, t.q + i * depth, t.rows, n, depth);
		} else {
			NAMED(transpose)(t.k, t.rows, n, depth);
			memset(t.scores, 0, (size_t)(rows * KEYS) * sizeof *t.scores);
			NAMED(add_products)(t.scores, KEYS, t.q, depth, t.k, KEYS, rows, depth, n);
		}
		for (int64_t i = 0; i < rows; i++)
			NAMED(weigh_row)(&t, w, at, first_row + i, i, first, n, mask);
		NAMED(gather)(t.rows, &views[ATTENTION_V], at, at->shared, first, n);
		NAMED(add_products)(t.sums, values, t.scores, KEYS, t.rows, values, rows, n, values);
	}
	NAMED(end)(&t, w, at, first_row, rows);
}
