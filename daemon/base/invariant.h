/*
 * invariant.h: what callers promise and what functions promise, where a reader looks for it. Builds of the type
 * Debug, which those with sanitizers are, check it; others compile it and never evaluate it.
 */
#ifndef KOPS_INVARIANT_H
#define KOPS_INVARIANT_H

#include <assert.h>

#ifdef NDEBUG
#define INVARIANT(condition) ((void)(0 && (condition))) /* of data, between any two calls */
#else
#define INVARIANT(condition) assert(condition)
#endif
#define PRE(condition)  INVARIANT(condition) /* the caller's promise */
#define POST(condition) INVARIANT(condition) /* the function's */

#endif
