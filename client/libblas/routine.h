/*
 * routine.h: one exported function: the next library's function of that name, which products go there at once,
 * and what happened to its calls.
 *
 * A function compares its product m * n * k with `floor`. Below, it jumps to `next`. Above, it begins a call
 * and asks kopsd. If kopsd did not compute the product, it calls `next`. Then it ends the call.
 *
 * Before the first call `next` is unknown, and so is the width of its integers. So integers are passed on as
 * they came, and routine_begin() is called before they are interpreted.
 */
#ifndef KOPS_LIBBLAS_ROUTINE_H
#define KOPS_LIBBLAS_ROUTINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "report.h"

struct routine {
	const char *name;
	const char *instead; /* a function of the same library, if this one may be missing; else NULL */
	_Atomic double floor;
	void *_Atomic next;
	_Atomic bool wide;
	_Atomic int state;
	uint32_t number; /* its number in the report */
};

#define ROUTINE(text, instead_)                                                                                \
	{                                                                                                      \
		.name = text, .instead = instead_, .floor = -1.0 / 0.0                                         \
	}

/* A call that is not passed on at once. */
struct call {
	struct routine *routine;
	bool is_part; /* a part of another call, which is counted */
	enum outcome outcome;
	int64_t started_ns;
	struct side *side; /* where its time is recorded; NULL: nowhere. A failed job counts as kopsd's time */
	double flops;
	uint64_t copied_bytes, used_bytes; /* by kopsd: copied both ways, and used where they were */
	char what[96];                     /* the extents, for people */
	int error;                         /* errno before the call */
};

static inline bool routine_hands_on(struct routine *r, double product)
{
	return product < atomic_load_explicit(&r->floor, memory_order_acquire);
}

/* Returns the next function. Set once a call began; NULL only if r->instead exists. */
static inline void *routine_next(struct routine *r)
{
	return atomic_load_explicit(&r->next, memory_order_relaxed);
}

/* Returns true if `next`, and so the caller, uses 64-bit integers. Set once a call began. */
static inline bool routine_is_wide(struct routine *r)
{
	return atomic_load_explicit(&r->wide, memory_order_relaxed);
}

void routine_begin(struct call *call, struct routine *r, bool is_part);
void routine_end(struct call *call);

int64_t routine_now_ns(void);

#endif
