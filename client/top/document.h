/* document.h: what kops-top --json prints. */
#ifndef KOPS_TOP_DOCUMENT_H
#define KOPS_TOP_DOCUMENT_H

#include "snapshot.h"
#include "top.h"

/*
 * Prints one line: the state at the second snapshot, and the rates between the two. KOPS_E_NOMEM: the line is
 * incomplete.
 */
int document_print(const struct snapshot *before, const struct snapshot *now, enum top_sort sort);

#endif
