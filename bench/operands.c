#include "operands.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "dtype.h"
#include "random.h"
#include "show.h"

#define ALIGNMENT   256
#define BLOCK_MAX   ((16ull << 20) - 1088) /* elements; leaves room for the starts before the block */
#define STARTS      16
#define START_STEP  64 /* elements */
#define SETS_MAX    1024
#define CACHES      4              /* caches of bytes that pass between two uses */
#define CACHE_GUESS (256ull << 20) /* for a device that does not report its cache */
#define CPU_SETS    (1ull << 30)   /* bytes of all sets: other programs need memory too */
#define OUT         STEP_INPUTS_MAX
#define CONTENT_END (STARTS * START_STEP) /* elements before the block's first start; NaN comes last */

/* ---- content ---- */

const char *const bench_input_names[] = {"uniform", "normal", "outliers", "lognormal", NULL};

/* By Box and Muller. */
static double draw_normal(struct random *random)
{
	double u = 1 - fabs(random_unit(random)), v = random_unit(random);

	return sqrt(-2 * log(u)) * cos(3.14159265358979 * v);
}

static double draw(enum bench_input input, struct random *random)
{
	switch (input) {
	case INPUT_NORMAL:
		return draw_normal(random);
	case INPUT_OUTLIERS:
		return draw_normal(random) * (random_below(random, 100) == 0 ? 1000 : 1);
	case INPUT_LOGNORMAL:
		return exp(2 * draw_normal(random));
	default:
		return random_unit(random);
	}
}

void bench_fill(const kops_view *view, enum bench_input input, uint64_t seed)
{
	kops_dtype component = dtype_component(view->dtype);
	size_t size = kops_dtype_size(component);
	unsigned char *next = (unsigned char *)kops_data(view->buffer) + view->offset;
	uint64_t n = dtype_components(view->dtype);
	struct random random;

	for (uint32_t d = 0; d < view->rank; d++)
		n *= view->shape[d];
	random_start(&random, seed);
	for (uint64_t i = 0; i < n; i++, next += size)
		element_put(component, next, draw(input, &random));
}

/* Returns a dense vector in a buffer. */
static kops_view vector(kops_buffer *buffer, kops_dtype dtype, uint64_t first, uint64_t n)
{
	return kops_tensor(buffer, first * kops_dtype_size(dtype), dtype, 1, &n);
}

static struct step copy_step(kops_view from, kops_view to)
{
	struct step step = step_of(operation_by_name("copy"));

	step.in[0] = from;
	step.out = to;
	return step;
}

static void write_content(struct bench_content *c, enum bench_input input, uint64_t seed)
{
	kops_view all = vector(c->shared, c->dtype, 0, c->elements + CONTENT_END);
	unsigned char *end = (unsigned char *)kops_data(c->shared) + all.shape[0] * kops_dtype_size(c->dtype);

	bench_fill(&all, input, seed);
	element_put(c->dtype, end, (double)NAN);
}

static void content_free(struct bench_content *c)
{
	if (c->used != c->shared)
		kops_free(c->used);
	kops_free(c->shared);
	*c = (struct bench_content){0};
}

static int content_upload(struct bench *b, struct bench_content *c)
{
	uint64_t n = c->elements + CONTENT_END + 1;
	int rc = bench_alloc(b, n * kops_dtype_size(c->dtype), false, &c->used);

	if (rc < 0)
		return rc;
	struct step step = copy_step(vector(c->shared, c->dtype, 0, n), vector(c->used, c->dtype, 0, n));
	return bench_jobs(b, &step, 1);
}

/* Makes a block for operands of `elements`, unless there is one that is large enough. */
static int content_make(struct bench *b, kops_dtype dtype, uint64_t elements)
{
	struct bench_content c = {.dtype = dtype, .elements = elements < BLOCK_MAX ? elements : BLOCK_MAX};
	uint64_t bytes = (c.elements + CONTENT_END + 1) * kops_dtype_size(dtype);

	if (b->content.dtype == dtype && b->content.elements >= c.elements)
		return 0;
	content_free(&b->content);
	int rc = bench_alloc(b, bytes, true, &c.shared);
	if (rc < 0)
		return rc;
	write_content(&c, b->input, b->seed);
	if (b->host)
		c.used = c.shared;
	else
		rc = content_upload(b, &c);
	if (rc < 0)
		content_free(&c);
	else
		b->content = c;
	return rc;
}

/* Copies the block into a vector as often as it fits, then its beginning. */
static int fill(struct bench *b, kops_buffer *buffer, kops_dtype dtype, uint64_t elements, unsigned start)
{
	const struct bench_content *c = &b->content;
	uint64_t whole = elements / c->elements, rest = elements % c->elements;
	uint64_t first = (uint64_t)(start % STARTS) * START_STEP;
	struct step steps[2];
	size_t n = 0;

	if (whole > 0) {
		uint64_t shape[] = {whole, c->elements};
		kops_view from = kops_tensor(c->used, first * kops_dtype_size(dtype), dtype, 2, shape);
		from.strides[0] = 0;
		steps[n++] = copy_step(from, kops_tensor(buffer, 0, dtype, 2, shape));
	}
	if (rest > 0)
		steps[n++] = copy_step(vector(c->used, dtype, first, rest),
		                       vector(buffer, dtype, whole * c->elements, rest));
	return bench_jobs(b, steps, n);
}

/* ---- memory ---- */

static kops_view *operand(struct step *step, unsigned i)
{
	return i == OUT ? &step->out : &step->in[i];
}

static bool exists(const struct operands *o, unsigned i)
{
	return i == OUT || (i < o->step.op->n_inputs && step_has(&o->step, i));
}

static uint64_t set_bytes(const kops_view *view)
{
	uint64_t bytes = step_elements(view) * kops_dtype_size(view->dtype);

	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void operands_free(struct operands *o)
{
	for (unsigned i = 0; i <= OUT; i++)
		kops_free(o->buffers[i]);
	*o = (struct operands){.n_sets = 0};
}

static int allocate(struct bench *b, struct operands *o)
{
	for (unsigned i = 0; i <= OUT; i++) {
		uint64_t bytes;
		if (!exists(o, i))
			continue;
		o->stride_bytes[i] = set_bytes(operand(&o->step, i));
		if (__builtin_mul_overflow(o->stride_bytes[i], o->n_sets, &bytes))
			return KOPS_E_NOMEM;
		int rc = bench_alloc(b, bytes, b->host, &o->buffers[i]);
		if (rc < 0)
			return rc;
		operand(&o->step, i)->buffer = o->buffers[i];
	}
	return 0;
}

/* Fills set after set in the host's memory. */
static void fill_sets(const struct operands *o, unsigned i, kops_buffer *host, struct random *random)
{
	struct step one = o->step;

	one.in[i].buffer = host;
	for (unsigned set = 0; set < o->n_sets; set++) {
		one.in[i].offset = set * o->stride_bytes[i];
		step_fill_random(&one, i, random);
	}
}

/* Fills all sets of an input that has no random numbers, each set with others. */
static int fill_chosen(struct bench *b, struct operands *o, unsigned i)
{
	struct step all = o->step;
	kops_view *view = &all.in[i], there;
	struct random random;

	*view = vector(NULL, view->dtype, 0, kops_size(o->buffers[i]) / kops_dtype_size(view->dtype));
	there = *view;
	there.buffer = o->buffers[i];
	int rc = bench_alloc(b, kops_size(o->buffers[i]), true, &view->buffer);
	if (rc < 0)
		return rc;
	random_start(&random, b->seed);
	if (operation_is_index(o->step.op, i))
		step_fill_random(&all, i, &random);
	else
		fill_sets(o, i, view->buffer, &random);
	struct step copy = copy_step(*view, there);
	rc = bench_jobs(b, &copy, 1);
	kops_free(view->buffer);
	return rc;
}

static bool is_chosen(const struct operands *o, unsigned i)
{
	return i != OUT && (operation_is_index(o->step.op, i) || operation_has_large_diagonal(o->step.op, i));
}

/* Fills the outputs too, since their first touch must not be measured. */
static int fill_all(struct bench *b, struct operands *o)
{
	kops_dtype dtype = o->step.out.dtype;
	uint64_t largest = 0;

	for (unsigned i = 0; i <= OUT; i++) {
		uint64_t elements = o->buffers[i] ? kops_size(o->buffers[i]) / kops_dtype_size(dtype) : 0;
		largest = elements > largest ? elements : largest;
	}
	int rc = content_make(b, dtype, largest);
	for (unsigned i = 0; rc == 0 && i <= OUT; i++)
		if (o->buffers[i] && is_chosen(o, i))
			rc = fill_chosen(b, o, i);
		else if (o->buffers[i])
			rc = fill(b, o->buffers[i], dtype, kops_size(o->buffers[i]) / kops_dtype_size(dtype),
			          7 * i);
	return rc;
}

/* A system may promise more memory than it has. A program that touches all of it takes down others. */
static int check_room(struct bench *b, uint64_t footprint_bytes)
{
	uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t memory = b->host ? host : b->device->memory_bytes;

	if (memory == 0 || footprint_bytes <= memory / 4 * 3)
		return 0;
	snprintf(b->why, sizeof(b->why), "takes %s of operands, more than 3/4 of the %s of %s",
	         show_bytes(footprint_bytes).text, show_bytes(memory).text,
	         b->host ? "the host" : b->device->name);
	return KOPS_E_NOMEM;
}

int operands_make(struct bench *b, const struct step *shape, size_t most_sets, struct operands *ret)
{
	size_t n_sets = most_sets ? most_sets : 1;
	int rc = check_room(b, bench_footprint(shape));

	if (rc < 0)
		return rc;

	for (;; n_sets /= 2) {
		struct operands o = {.step = *shape, .n_sets = n_sets};
		rc = allocate(b, &o);
		if (rc == 0)
			rc = fill_all(b, &o);
		if (rc == 0) {
			*ret = o;
			return 0;
		}
		operands_free(&o);
		if ((rc != KOPS_E_NOMEM && rc != KOPS_E_QUOTA) || n_sets == 1)
			return rc;
	}
}

static uint64_t cold_bytes(const struct bench *b)
{
	return CACHES * (b->device->cache_bytes ? b->device->cache_bytes : CACHE_GUESS);
}

size_t operands_cold_sets(const struct bench *b, uint64_t footprint_bytes)
{
	uint64_t bytes = cold_bytes(b);

	if (strcmp(b->kind, "cpu") == 0 && bytes > CPU_SETS)
		bytes = CPU_SETS;
	uint64_t sets = (bytes + footprint_bytes - 1) / footprint_bytes;
	return sets < SETS_MAX ? (size_t)sets : SETS_MAX;
}

bool operands_are_cold(const struct bench *b, uint64_t footprint_bytes, size_t n_sets)
{
	return footprint_bytes * n_sets >= cold_bytes(b);
}

struct step operands_step(const struct operands *o, size_t set)
{
	struct step step = o->step;

	for (unsigned i = 0; i <= OUT; i++)
		if (exists(o, i))
			operand(&step, i)->offset += set * o->stride_bytes[i];
	return step;
}

int operands_poison(struct bench *b, const struct operands *o)
{
	const struct bench_content *c = &b->content;
	kops_view nan = o->step.out;

	nan.buffer = c->used;
	nan.offset = (c->elements + CONTENT_END) * kops_dtype_size(c->dtype);
	memset(nan.strides, 0, sizeof(nan.strides));
	struct step step = copy_step(nan, o->step.out);
	return bench_jobs(b, &step, 1);
}
