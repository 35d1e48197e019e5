/*
 * copy.c: copies columns by memcpy(), or past the caches, and mirrors symmetric matrices by tiles, so that both
 * sides stay in cache.
 *
 * Copies larger than the caches bypass them: otherwise each line would be read before it is written. This is
 * 1.5 times as fast on an EPYC 9004.
 */
#include "copy.h"

#include <pthread.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/threads.h"
#include "guard.h"
#include "heap/memory.h"
#include "settings.h"

#define TILE         32
#define GRAIN_BYTES  (UINT64_C(512) << 10) /* copying this takes 50 µs, about as long as waking a thread */
#define STREAM_BYTES (UINT64_C(4) << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare_threads(void)
{
	threads_set(settings_get()->threads);
	pthread_atfork(NULL, NULL, threads_forget);
}

static unsigned parts_of(uint64_t bytes)
{
	if (bytes < 2 * GRAIN_BYTES)
		return 1;
	pthread_once(&once, prepare_threads);
	return threads_parts(bytes, GRAIN_BYTES);
}

/*
 * Shares the work with other threads, which use this thread's stack: no signal handler may leave it by
 * longjmp().
 */
static void run(unsigned n_parts, void (*fn)(void *ctx, unsigned part), void *ctx)
{
	sigset_t signals;
	if (n_parts > 1)
		guard_block_signals(&signals);
	threads_run(n_parts, fn, ctx);
	if (n_parts > 1)
		guard_restore_signals(&signals);
}

/* ---- Whole columns ---- */

#ifdef __SSE2__
#define STEP 64

static void stream(char *to, const char *from, size_t bytes)
{
	size_t head = -(uintptr_t)to % STEP;
	if (bytes < head + STEP) {
		memcpy(to, from, bytes);
		return;
	}
	memcpy(to, from, head);
	size_t at = head;
	for (; at + STEP <= bytes; at += STEP) {
		const __m128i *in = (const __m128i *)(const void *)(from + at);
		__m128i *out = (__m128i *)(void *)(to + at);
		__m128i v0 = _mm_loadu_si128(in), v1 = _mm_loadu_si128(in + 1), v2 = _mm_loadu_si128(in + 2),
		        v3 = _mm_loadu_si128(in + 3);
		_mm_stream_si128(out, v0);
		_mm_stream_si128(out + 1, v1);
		_mm_stream_si128(out + 2, v2);
		_mm_stream_si128(out + 3, v3);
	}
	memcpy(to + at, from + at, bytes - at);
}

/* Orders all stores before it, so that whoever learns of the copy sees them. */
static void stream_end(void)
{
	_mm_sfence();
}
#else
static void stream(char *to, const char *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void stream_end(void)
{
}
#endif

/* A copy and its division among threads. */
struct shared_copy {
	struct copy copy;
	enum triangle triangle;
	bool streams;
	unsigned n_parts;
};

static void copy_column(const struct shared_copy *s, uint64_t col, uint64_t begin, uint64_t end)
{
	const struct copy *c = &s->copy;
	if (s->triangle == LOWER && begin < col)
		begin = col;
	if (s->triangle == UPPER && end > col + 1)
		end = col + 1;
	if (end <= begin)
		return;
	char *to = c->to + (col * c->to_ld + begin) * c->element;
	const char *from = c->from + (col * c->from_ld + begin) * c->element;
	if (s->streams)
		stream(to, from, (end - begin) * c->element);
	else
		memcpy(to, from, (end - begin) * c->element);
}

/* Copies some of the columns, or of the rows if there are few columns. */
static void copy_part(void *ctx, unsigned part)
{
	const struct shared_copy *s = ctx;
	uint64_t rows = s->copy.rows, cols = s->copy.cols;
	bool by_cols = cols >= s->n_parts;
	uint64_t begin = threads_bound(by_cols ? cols : rows, part, s->n_parts);
	uint64_t end = threads_bound(by_cols ? cols : rows, part + 1, s->n_parts);
	for (uint64_t col = by_cols ? begin : 0; col < (by_cols ? end : cols); col++)
		copy_column(s, col, by_cols ? 0 : begin, by_cols ? rows : end);
	if (s->streams)
		stream_end();
}

void copy_matrix(const struct copy *copy, enum triangle triangle)
{
	uint64_t bytes = copy->rows * copy->cols * copy->element;
	struct shared_copy s = {*copy, triangle, bytes >= STREAM_BYTES, parts_of(bytes)};
	if (triangle == WHOLE && copy->to_ld == copy->rows && copy->from_ld == copy->rows) {
		s.copy.rows *= copy->cols;
		s.copy.cols = 1;
	}
	run(s.n_parts, copy_part, &s);
}

/* ---- Symmetric matrices ---- */

static inline void conjugate(char *number, size_t element)
{
	float im32;
	double im;
	if (element == 2 * sizeof im32) {
		memcpy(&im32, number + sizeof im32, sizeof im32);
		im32 = -im32;
		memcpy(number + sizeof im32, &im32, sizeof im32);
	} else {
		memcpy(&im, number + sizeof im, sizeof im);
		im = -im;
		memcpy(number + sizeof im, &im, sizeof im);
	}
}

/*
 * Writes one tile of element (j, i) = (i, j), i < j, where m is column-major; the stored triangle is the
 * source.
 */
static inline void mirror_tile(const struct copy *c, size_t element, enum triangle stored, uint64_t i0,
                               uint64_t j0)
{
	for (uint64_t j = j0; j < j0 + TILE && j < c->cols; j++)
		for (uint64_t i = i0; i < i0 + TILE && i < j; i++) {
			char *upper = c->to + (j * c->to_ld + i) * element;
			char *lower = c->to + (i * c->to_ld + j) * element;
			memcpy(stored == UPPER ? lower : upper, stored == UPPER ? upper : lower, element);
			if (c->hermitian)
				conjugate(stored == UPPER ? lower : upper, element);
		}
}

/* Mirrors some of the columns of tiles. */
static void mirror_part(void *ctx, unsigned part)
{
	const struct shared_copy *s = ctx;
	uint64_t tiles = (s->copy.cols + TILE - 1) / TILE;
	uint64_t end = threads_bound(tiles, part + 1, s->n_parts);
	for (uint64_t j = threads_bound(tiles, part, s->n_parts); j < end; j++)
		for (uint64_t i = 0; i <= j; i++) {
			if (s->copy.element == 4)
				mirror_tile(&s->copy, 4, s->triangle, i * TILE, j * TILE);
			else if (s->copy.element == 8)
				mirror_tile(&s->copy, 8, s->triangle, i * TILE, j * TILE);
			else
				mirror_tile(&s->copy, 16, s->triangle, i * TILE, j * TILE);
		}
}

void copy_symmetric(const struct copy *copy, enum triangle stored)
{
	copy_matrix(copy, stored);
	uint64_t bytes = copy->rows * copy->cols * copy->element;
	struct shared_copy s = {*copy, stored, false, parts_of(bytes)};
	run(s.n_parts, mirror_part, &s);
}

void copy_make_diagonal_real(char *matrix, uint64_t ld, uint64_t n, size_t element)
{
	for (uint64_t i = 0; i < n; i++)
		memset(matrix + i * (ld + 1) * element + element / 2, 0, element / 2);
}

/* ---- Many matrices ---- */

struct many {
	uint64_t n;
	void (*copy_one)(void *ctx, uint64_t i);
	void *ctx;
	unsigned n_parts;
};

static void copy_some(void *ctx, unsigned part)
{
	const struct many *m = ctx;
	uint64_t end = threads_bound(m->n, part + 1, m->n_parts);
	for (uint64_t i = threads_bound(m->n, part, m->n_parts); i < end; i++)
		m->copy_one(m->ctx, i);
}

void copy_each(uint64_t n, uint64_t bytes, void (*copy_one)(void *ctx, uint64_t i), void *ctx)
{
	struct many m = {n, copy_one, ctx, n > 1 ? parts_of(n * bytes) : 1};
	run(m.n_parts, copy_some, &m);
}

/* ---- Pages ---- */

struct pages {
	char *begin;
	uint64_t n;
	unsigned n_parts;
	_Atomic bool has_failed;
};

static void get_pages(void *ctx, unsigned part)
{
	struct pages *p = ctx;
	uint64_t page = memory_page_bytes(), begin = threads_bound(p->n, part, p->n_parts);
	if (!memory_populate(p->begin + begin * page,
	                     (threads_bound(p->n, part + 1, p->n_parts) - begin) * page))
		p->has_failed = true;
}

/* By half of the threads, since kopsd may need CPUs meanwhile. */
bool copy_get_pages(void *memory, uint64_t bytes)
{
	uint64_t page = memory_page_bytes(), skipped = -(uintptr_t)memory % page;
	if (bytes < skipped + page)
		return true;
	struct pages pages = {(char *)memory + skipped, (bytes - skipped) / page, parts_of(bytes), false};
	unsigned most = (settings_get()->threads + 1) / 2;
	if (pages.n_parts > most)
		pages.n_parts = most;
	run(pages.n_parts, get_pages, &pages);
	return !pages.has_failed;
}
