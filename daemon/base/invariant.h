/*
 * invariant.h: what callers promise and what functions promise, where a reader looks for it. Builds of the type
 * Debug, which those with sanitizers are, check it; others compile nothing.
 */
#ifndef KOPS_INVARIANT_H
#define KOPS_INVARIANT_H

#include <assert.h>

#define PRE(condition)       assert(condition) /* the caller's promise */
#define POST(condition)      assert(condition) /* the function's */
#define INVARIANT(condition) assert(condition) /* of data, between any two calls */

#endif
