/* host_pages.h: what this process's first touch of shared memory costs, for plans. */
#ifndef KOPS_HOST_PAGES_H
#define KOPS_HOST_PAGES_H

#include <math.h>

#include "device/backend.h"
#include "host_memory.h"

#define HOST_LINE_BYTES 64

/*
 * us for the pages of a view of SHARED memory. Those that nobody has written yet the kernel has to make. Those
 * that are there it has to map, when they are read with their neighbours, unless jobs have reached them before.
 * Which of the buffer's pages they are is not known: a view has its share of all.
 */
static inline double host_pages_us(const struct view *v, bool is_written)
{
	const double make_us = 1.8, map_us = is_written ? 0.9 : 0.2;
	const struct memory *m = (const struct memory *)v->space;
	double pages = view_blocks(v, HOST_PAGE_BYTES), missing, mapped;

	if (m->owner || pages == 0)
		return 0;
	missing = fmin((double)m->missing_bytes / (double)m->bytes, 1);
	mapped = fmin((double)m->reached_bytes / (double)m->bytes, 1 - missing);
	return pages * (missing * make_us + (1 - missing - mapped) * map_us);
}

#endif
