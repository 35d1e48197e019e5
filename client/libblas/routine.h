/*
 * routine.h: one function that this library exports: what is next in line under its name, which products it
 * hands on at once, and what became of its calls.
 *
 * A function compares its product m * n * k with `floor`. Below, it jumps to `next`, and that is all. Above, it
 * begins a call, asks kopsd, and where that did not compute the product, calls `next` and ends the call.
 *
 * Before the first call nothing is known of `next`, not even how wide its integers are. So integers are handed
 * on as they came, and routine_begin() comes before the first look at them that counts.
 */
#ifndef KOPS_LIBBLAS_ROUTINE_H
#define KOPS_LIBBLAS_ROUTINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "report.h"

struct routine {
	const char *name;
	const char *instead; /* of the same library, where this one need not exist; NULL: it must */
	_Atomic double floor;
	void *_Atomic next;
	_Atomic bool wide;
	_Atomic int state;
	uint32_t number; /* in the report */
};

#define ROUTINE(text, instead_)                                                                                \
	{                                                                                                      \
		.name = text, .instead = instead_, .floor = -1.0 / 0.0                                         \
	}

/* A call that is not handed on at once. */
struct call {
	struct routine *routine;
	bool is_part; /* of another call, which is counted */
	enum outcome outcome;
	int64_t started_ns;
	struct side *side; /* where its time counts; NULL: nowhere. A failed job counts as kopsd's time */
	double flops;
	char what[96]; /* its extents, for people */
	int error;     /* errno as it was */
};

static inline bool routine_hands_on(struct routine *r, double product)
{
	return product < atomic_load_explicit(&r->floor, memory_order_acquire);
}

/* Set once a call began. NULL only where there is another one instead. */
static inline void *routine_next(struct routine *r)
{
	return atomic_load_explicit(&r->next, memory_order_relaxed);
}

/* Whether `next` takes 64-bit integers, and so the caller means them. Set once a call began. */
static inline bool routine_is_wide(struct routine *r)
{
	return atomic_load_explicit(&r->wide, memory_order_relaxed);
}

void routine_begin(struct call *call, struct routine *r, bool is_part);
void routine_end(struct call *call);

int64_t routine_now_ns(void);

#endif
