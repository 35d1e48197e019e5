/* document.h: what kops-top shows, as JSON: for --json. */
#ifndef KOPS_TOP_DOCUMENT_H
#define KOPS_TOP_DOCUMENT_H

#include "snapshot.h"
#include "top.h"

/* One line on stdout: what is at the second snapshot, and what was between the two. KOPS_E_NOMEM: it is not all
 * there. */
int document_print(const struct snapshot *before, const struct snapshot *now, enum top_sort sort);

#endif
