/* cpu_time.c: estimates the time of memory accesses on the CPU, for plans. See cpu.h. */
#include <math.h>

#include "common/cpu.h"
#include "common/threads.h"

#define LINE_BYTES 64
#define PAGE_BYTES 4096
#define LINE_NS    9.5 /* a line among others that are read or written */
#define FAR_NS     18  /* a line by itself */
#define PAGE_NS    15  /* added if that is the only one of its page */
#define SHARERS    16  /* threads that saturate the memory's bandwidth */

double cpu_threads(double parts)
{
	return fmax(fmin(threads_count(), parts), 1);
}

static double distinct_elements(const struct view *v)
{
	double n = 1;

	for (uint32_t d = 0; d < v->rank; d++)
		n *= v->strides[d] != 0 || v->shape[d] == 0 ? (double)v->shape[d] : 1;
	return n;
}

double cpu_view_ns(const struct view *v)
{
	double lines = view_blocks(v, LINE_BYTES), pages = view_blocks(v, PAGE_BYTES);
	bool far = lines > 0.9 * distinct_elements(v);

	return lines * (far ? FAR_NS : LINE_NS) + (far && pages > 0.9 * lines ? pages * PAGE_NS : 0);
}

double cpu_memory_ns(const struct op_args *args, double parts)
{
	double ns = 0;

	for (unsigned i = 0; i < args->op->n_operands; i++)
		ns += cpu_view_ns(&args->views[i]);
	return ns / fmin(cpu_threads(parts), SHARERS);
}
