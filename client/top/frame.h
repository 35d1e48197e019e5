/* frame.h: what kops-top shows, as lines of text, for the screen and for --batch. */
#ifndef KOPS_TOP_FRAME_H
#define KOPS_TOP_FRAME_H

#include <stddef.h>

#include "snapshot.h"
#include "top.h"

#define FRAME_LINE_BYTES  384
#define FRAME_BAR_AT      15 /* column of a device's bar; no character before it is wide */
#define FRAME_BAR_COLUMNS 8

enum look { LOOK_PLAIN, LOOK_HEADING, LOOK_DEVICE };

struct line {
	enum look look;
	double busy;                 /* LOOK_DEVICE: share of the time, 0 to 1 */
	char text[FRAME_LINE_BYTES]; /* UTF-8, without newline */
};

struct frame {
	struct line *lines;
	size_t n, capacity;
	bool is_short; /* there was not enough memory */
};

/* Fills *frame with the second snapshot and the rates between the two. KOPS_E_NOMEM. */
int frame_make(struct frame *frame, const struct snapshot *before, const struct snapshot *now,
               enum top_sort sort);
void frame_free(struct frame *frame);

#endif
