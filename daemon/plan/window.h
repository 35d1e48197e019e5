/*
 * window.h: operands of which the device has only what a part needs, because they do not fit it as a whole.
 *
 * Each part of an op whose cut has_windows (kernel.h) is a tile, or a range of steps of one. A window is the
 * memory that an operand in host memory has on the device: one place, or two if the parts need different
 * elements of it. Each place has room for a dense image of what one part needs. While a part is computed, what
 * the next one needs goes to the other places, and what the tile before has written is downloaded from them
 * (mover.c). What the next part needs too stays where it is.
 *
 * An operand in RESIDENT memory has no window.
 */
#ifndef KOPS_PLAN_WINDOW_H
#define KOPS_PLAN_WINDOW_H

#include "plan/layout.h"
#include "plan/run.h"

struct window {
	uint64_t offset;      /* in the scratch memory */
	uint64_t place_bytes; /* 0: the operand has no window */
	uint32_t n_places;
	uint32_t
	    fills; /* the mover's: how many images it has had in this run; the newest is in place fills - 1 */
};

/*
 * Gives each operand of a cut op a window. args: as the client sent it. Returns the bytes of all of them; with
 * ret NULL that only.
 */
uint64_t window_lay_out(const struct op_args *args, const struct op_cut *cut, struct window *ret);

/*
 * Makes the op of which op_part() makes part i as its kernel will see it: operands with windows have the
 * strides of the part's images. With windows, their addresses are such that the part's are in the newest
 * places, in this scratch memory.
 */
void window_args(const struct op_args *args, const struct op_cut *cut, uint32_t i, const struct window *windows,
                 char *scratch, struct op_args *ret);

/* The image of an operand in its newest place (age 0) or the one before (1). */
static inline char *window_image(const struct window *w, char *scratch, unsigned age)
{
	return scratch + w->offset + (w->fills - 1 - age) % w->n_places * w->place_bytes;
}

/* Whether a part begins with old elements of the operand, given the part's args. */
bool window_is_read(const struct op_args *part, unsigned v);

/* Whether the kernel takes all parts; the most workspace that one of them needs. */
bool window_suits(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);
uint64_t window_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut);

#endif
