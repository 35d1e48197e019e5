/*
 * contest.c: decides which of two results has larger errors.
 *
 * A kernel must have no larger errors than its peer. But if both round equally often, chance decides which
 * errors are larger. So the question is whether the kernel's errors are larger than chance explains.
 *
 * RMS: D is the sum of d = own² - peer² over the elements. If own and peer can be exchanged, each d has either
 * sign with equal odds. Then D rarely exceeds some multiple of the root of the sum of d², whatever the
 * distribution. With a million elements an excess of half a percent shows.
 *
 * However, elements of a row of C share a row of A, and those of a column a column of B. If such a line has few
 * large terms, a kernel's order of summing is better or worse for all of it. So lines count as one element each
 * if that gives the larger root. A product of fewer than 26 rows or columns then cannot fail alone; those are
 * judged together.
 *
 * Largest: the n largest errors of both are all own with a chance of 2^-n. A few may exceed the peer's largest,
 * x, but not by much. Elements whose sums pass through large values err more than others, so tails are at most
 * as heavy as an exponential distribution's. There x is about ln n of its units, and x + ln 10^6 is a million
 * times less likely.
 *
 * If the peer rounds correctly (exact), nothing is excused.
 */
#include <math.h>
#include <stdlib.h>

#include "accuracy.h"

#define SIGMAS    5   /* one in three million */
#define ABOVE_MAX 20  /* one in a million */
#define ODDS      1e6 /* odds against a largest error by chance */

static double square(double x)
{
	return x * x;
}

static bool lines_add(struct lines *l, uint64_t line, double excess)
{
	if (line >= l->n) {
		uint64_t n = 2 * line + 64;
		double *more = realloc(l->excess, n * sizeof *more);
		if (!more)
			return false;
		for (uint64_t i = l->n; i < n; i++)
			more[i] = 0;
		l->excess = more;
		l->n = n;
	}
	l->excess[line] += excess;
	return true;
}

bool contest_add(struct contest *c, uint64_t row, uint64_t col, double own, double peer)
{
	double excess = square(own) - square(peer);

	if (!lines_add(&c->rows, row, excess) || !lines_add(&c->cols, col, excess))
		return false;
	if (c->n == c->room) {
		uint64_t room = c->room ? 2 * c->room : 4096;
		double *more_own = realloc(c->own, room * sizeof *more_own);
		if (more_own)
			c->own = more_own;
		double *more_peer = realloc(c->peer, room * sizeof *more_peer);
		if (more_peer)
			c->peer = more_peer;
		if (!more_own || !more_peer)
			return false;
		c->room = room;
	}
	c->own[c->n] = own;
	c->peer[c->n++] = peer;
	return true;
}

void contest_free(struct contest *c)
{
	free(c->own);
	free(c->peer);
	free(c->rows.excess);
	free(c->cols.excess);
	*c = (struct contest){0};
}

static double squares_of(const struct lines *l)
{
	double squares = 0;

	for (uint64_t i = 0; i < l->n; i++)
		squares += square(l->excess[i]);
	return squares;
}

void contest_score(const struct contest *c, struct score *ret)
{
	double own = 0, peer = 0, squares = 0;

	*ret = (struct score){.n = c->n};
	for (uint64_t i = 0; i < c->n; i++) {
		ret->own_max = fmax(ret->own_max, c->own[i]);
		ret->peer_max = fmax(ret->peer_max, c->peer[i]);
		own += square(c->own[i]);
		peer += square(c->peer[i]);
		ret->excess += square(c->own[i]) - square(c->peer[i]);
		squares += square(square(c->own[i]) - square(c->peer[i]));
	}
	for (uint64_t i = 0; i < c->n; i++)
		ret->above += c->own[i] > ret->peer_max;
	ret->own_rms = c->n ? sqrt(own / (double)c->n) : 0;
	ret->peer_rms = c->n ? sqrt(peer / (double)c->n) : 0;
	ret->spread = sqrt(fmax(squares, fmax(squares_of(&c->rows), squares_of(&c->cols))));
}

bool score_max_holds(const struct score *s, bool exact)
{
	double chance = s->peer_max * (1 + log(ODDS) / log((double)s->n + 1));

	return exact ? s->above == 0 : s->above < ABOVE_MAX && s->own_max <= chance;
}

bool score_rms_holds(const struct score *s, bool exact)
{
	return s->excess <= (exact ? 0 : SIGMAS * s->spread);
}

/* Adds in units of the case's own errors, so that each case counts by its elements. */
void pool_add(struct pool *p, const struct score *s)
{
	double unit = square(s->own_rms) + square(s->peer_rms);

	p->cases++;
	if (unit == 0)
		return;
	p->excess += s->excess / unit;
	p->squares += square(s->spread / unit);
	p->larger += (s->own_max > s->peer_max) - (s->own_max < s->peer_max);
	p->decided += s->own_max != s->peer_max;
}

bool pool_max_holds(const struct pool *p)
{
	return p->larger <= SIGMAS * sqrt(p->decided);
}

bool pool_rms_holds(const struct pool *p)
{
	return p->excess <= SIGMAS * sqrt(p->squares);
}
