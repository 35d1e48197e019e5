/* side.c: the times of both sides, by class of calls. */
#include "side.h"

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>

/* kopsd's first calls of a class allocate memory; its second job of a shape is prepared. */
#define KOPSD_TRIES    4
#define OTHER_TRIES    2
#define CLEARLY        2.0 /* a side slower than the other's best times by this factor is not tried */
#define LOOK_AGAIN     256 /* number of calls between tries of the slower side */
#define NEAR           4.0 /* a side that is slower by more is not tried again */
#define FLOPS_LOG2_MIN 21
#define FLOPS_CLASSES  32
#define RATIO_CLASSES  12
#define TYPES          4 /* f32, f64, c64, c128 */

struct side {
	/* ns per FLOP: the least of the first calls, then a running mean. [1] is kopsd. */
	_Atomic double ns[2];
	_Atomic uint32_t tries[2], calls;
};

static struct side sides[SIDE_KINDS * TYPES][FLOPS_CLASSES][RATIO_CLASSES];
/* ns per FLOP of the next BLAS: the least of all classes of a kind and type */
static _Atomic double bests[SIDE_KINDS * TYPES];

static int clamp(int value, int end)
{
	return value < 0 ? 0 : value >= end ? end - 1 : value;
}

struct side *side_of(enum side_kind kind, kops_dtype dtype, double flops, double bytes)
{
	unsigned type = dtype == KOPS_F32 ? 0 : dtype == KOPS_F64 ? 1 : dtype == KOPS_C64 ? 2 : 3;
	return &sides[kind * TYPES + type][clamp(ilogb(flops) - FLOPS_LOG2_MIN, FLOPS_CLASSES)]
	             [clamp(ilogb(flops / bytes), RATIO_CLASSES)];
}

static _Atomic double *best_of(const struct side *s)
{
	return &bests[(s - &sides[0][0][0]) / (FLOPS_CLASSES * RATIO_CLASSES)];
}

/* Returns true if the next BLAS, even at its best elsewhere, would clearly lose in this class. */
static bool is_hopeless(const struct side *s)
{
	double best = *best_of(s);
	return best > 0 && best > CLEARLY * s->ns[1];
}

bool side_choose(struct side *s)
{
	uint32_t calls = atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed) + 1;
	uint32_t tries = s->tries[1];
	if (tries == 0)
		return true;
	if (s->tries[0] < OTHER_TRIES && !is_hopeless(s) && s->tries[0] <= tries)
		return false;
	if (tries < KOPSD_TRIES)
		return true;
	bool kopsd = s->tries[0] == 0 || s->ns[1] < s->ns[0];
	bool near = s->tries[0] > 0 && s->ns[!kopsd] < NEAR * s->ns[kopsd];
	return near && calls % LOOK_AGAIN == 0 ? !kopsd : kopsd;
}

void side_note(struct side *s, bool kopsd, double ns)
{
	uint32_t tries = atomic_fetch_add_explicit(&s->tries[kopsd], 1, memory_order_relaxed);
	double known = s->ns[kopsd];
	if (tries < (kopsd ? KOPSD_TRIES : OTHER_TRIES))
		s->ns[kopsd] = tries > 0 && known < ns ? known : ns;
	else
		s->ns[kopsd] = known + (ns - known) / 4;
	_Atomic double *best = best_of(s);
	if (!kopsd && (*best == 0 || ns < *best))
		*best = ns;
}
