/*
 * perfetto.h: jobs as Chrome's trace events, which ui.perfetto.dev and chrome://tracing show: a track for each
 * device and each session, with the phases of each job as slices in it.
 */
#ifndef KOPS_TOP_PERFETTO_H
#define KOPS_TOP_PERFETTO_H

#include <stdio.h>

#include "kops.h"

/*
 * Writes one JSON document. Times are CLOCK_MONOTONIC's. Where jobs of a device or session overlap, as they may
 * on a GPU and in several queues, it has further tracks, so that slices of one track are apart or nested. n may
 * be 0. sessions: for their names. KOPS_E_NOMEM.
 */
int perfetto_write(FILE *out, const kops_traced_job *const *jobs, size_t n, const kops_list *sessions);

#endif
