/*
 * invariant.h: assertions of what callers and functions promise. Builds of type Debug, which those with
 * sanitizers are, check them; others compile them and never evaluate them.
 */
#ifndef KOPS_INVARIANT_H
#define KOPS_INVARIANT_H

#include <assert.h>

#ifdef NDEBUG
#define INVARIANT(condition) ((void)(0 && (condition))) /* holds for data between any two calls */
#else
#define INVARIANT(condition) assert(condition)
#endif
#define PRE(condition)  INVARIANT(condition) /* the caller's promise */
#define POST(condition) INVARIANT(condition) /* the function's */

#endif
