/* host_pages.h: what this process's first touch of shared memory costs, for plans. */
#ifndef KOPS_HOST_PAGES_H
#define KOPS_HOST_PAGES_H

#include <math.h>

#include "device/backend.h"

#define HOST_PAGE_BYTES 4096
#define HOST_LINE_BYTES 64

/*
 * us for the pages of a view of SHARED memory. Where all of a page is used it is likely that its client has
 * written it, and that it is mapped with its neighbours or has been already: the mean of a first and a later
 * touch. Where little of each is used, it may be a hole of a sparse memfd, which the kernel has to fill: 2 us.
 */
static inline double host_pages_us(const struct view *v, bool is_written)
{
	const double hole_us = 1.5, least_us = is_written ? 0.5 : 0.15;
	const struct memory *m = (const struct memory *)v->space;
	double pages = view_blocks(v, HOST_PAGE_BYTES), lines = view_blocks(v, HOST_LINE_BYTES);

	return m->owner || pages == 0 ? 0 : pages * fmax(hole_us / sqrt(fmax(lines / pages, 1)), least_us);
}

#endif
