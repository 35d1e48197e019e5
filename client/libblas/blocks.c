/* blocks.c: cuts c into blocks and computes two of them at a time. */
#include "blocks.h"

#include "layout.h"

#define SLOTS 2
#define BLOCK_BYTES                                                                                            \
	INT64_C(8388608) /* least size of a block of c: below, starting jobs takes longer than copies */
#define WIDTH_STEP 256
#define DEPTHS     2 /* least width in units of k: then the operand that is sent again is half of c's block */

/* ---- Cutting ---- */

bool blocks_cut(const struct product *p, const struct places *places, struct blocks *ret)
{
	bool by_rows = p->m > p->n;
	int64_t extent = by_rows ? p->m : p->n, other = by_rows ? p->n : p->m;
	int64_t width = BLOCK_BYTES / (int64_t)kops_dtype_size(p->dtype) / other + 1;
	if (width < DEPTHS * p->k)
		width = DEPTHS * p->k;
	int64_t n = extent / width;
	if (p->b_is_a || n < 2)
		return false;
	width = (extent / n + WIDTH_STEP - 1) / WIDTH_STEP * WIDTH_STEP;
	*ret = (struct blocks){p, places, by_rows, extent, width};
	return width < extent;
}

static struct product block_of(const struct blocks *b, int64_t i)
{
	int64_t begin = i * b->width, end = begin + b->width;
	return product_part(b->product, b->by_rows, begin, end < b->extent ? end : b->extent);
}

/* ---- Computing ---- */

struct slot {
	struct product part;
	struct layout layout;
	kops_job *job; /* NULL: the job could not be started */
};

struct run {
	const struct blocks *blocks;
	struct channel *channel;
	kops_buffer *buffer;
	uint64_t slot_bytes;
	struct slot slots[SLOTS];
};

/* Returns the operand of which each block has its own part. */
static const struct operand *changing(const struct run *r, const struct product *p)
{
	return r->blocks->by_rows ? &p->a : &p->b;
}

static struct region *changing_region(const struct run *r, struct layout *layout)
{
	return r->blocks->by_rows ? &layout->a : &layout->b;
}

static bool get_memory(struct run *r)
{
	struct product first = block_of(r->blocks, 0);
	struct layout layout;
	if (!channel_is_open(r->channel) ||
	    !layout_make(&first, r->blocks->places, r->blocks->by_rows, &layout))
		return false;
	r->slot_bytes = layout.bytes - layout.first_bytes;
	r->buffer = channel_memory(r->channel, layout.bytes + (SLOTS - 1) * r->slot_bytes);
	if (!r->buffer)
		return false;
	if (r->blocks->by_rows)
		layout_load(&first, &first.b, &layout.b, kops_data(r->buffer));
	else
		layout_load(&first, &first.a, &layout.a, kops_data(r->buffer));
	return true;
}

static void start(struct run *r, int64_t i)
{
	uint32_t number = (uint32_t)(i % SLOTS);
	struct slot *s = &r->slots[number];
	s->part = block_of(r->blocks, i);
	s->job = NULL;
	if (!channel_is_open(r->channel) ||
	    !layout_make(&s->part, r->blocks->places, r->blocks->by_rows, &s->layout))
		return;
	if (!changing_region(r, &s->layout)->place)
		changing_region(r, &s->layout)->offset += number * r->slot_bytes;
	s->layout.c.offset += number * r->slot_bytes;
	layout_load(&s->part, changing(r, &s->part), changing_region(r, &s->layout), kops_data(r->buffer));
	if (s->part.beta != 0)
		layout_load(&s->part, &s->part.c, &s->layout.c, kops_data(r->buffer));
	s->job = layout_submit(r->channel, r->buffer, &s->part, &s->layout, number);
	if (s->job)
		layout_expect(&s->part);
}

/* Returns false if c's block is as it was. When the channel was closed, its jobs are gone. */
static bool finish(struct run *r, int64_t i)
{
	struct slot *s = &r->slots[i % SLOTS];
	if (!channel_is_open(r->channel) || !s->job)
		return false;
	if (channel_wait(r->channel, s->job, product_flops(r->blocks->product)) < 0)
		return false;
	layout_store(&s->part, &s->layout.c, kops_data(r->buffer));
	return true;
}

bool blocks_compute(const struct blocks *blocks, struct channel *channel, product_function *other,
                    int64_t *failed)
{
	struct run run = {.blocks = blocks, .channel = channel};
	int64_t n = (blocks->extent + blocks->width - 1) / blocks->width;
	if (!get_memory(&run))
		return false;
	for (int64_t i = 0; i < n + SLOTS; i++) {
		if (i >= SLOTS && !finish(&run, i - SLOTS)) {
			++*failed;
			other(&run.slots[i % SLOTS].part);
		}
		if (i < n)
			start(&run, i);
	}
	return true;
}
