/*
 * slice.h: the time slice of a thread that has little to do, but soon.
 *
 * Linux's scheduler (EEVDF, 6.6) lets a thread whose slice is shorter run earlier than others that want the CPU
 * as well, for the same share of it. Threads may choose their slices since 6.12; older kernels ignore the wish.
 */
#ifndef KOPS_SLICE_H
#define KOPS_SLICE_H

/* Of the calling thread, and of those that it creates from then on. Everything else stays, its nice value too.
 */
void slice_shorten(void);

#endif
